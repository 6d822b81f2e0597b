"""The samplers of block-diffusion families, token for token beside naive loops written from the
published descriptions: the whole text again in each step, and no cache.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dise_core import LLM, BlockCausal, SamplingParams
from dise_core.models.info import LastBlockRule
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, MASK
from tests.reference_samplers import (
    Model,
    Rule,
    dynamic,
    entropy_bounded,
    fast_dllm_v2,
    sequential,
    stable_diffcoder,
    static,
    written,
    written_with_edits,
)

PROMPTS = [np.random.default_rng(n).integers(0, 10, n).tolist() for n in (1, 4, 7, 8, 13)]


def toy_of(length: int, last: LastBlockRule = "masks") -> tuple[ToyPredictor, Model]:
    toy = ToyPredictor(max_length=80, seed=1, attention=BlockCausal(length))
    toy.info = replace(toy.info, last_block=last)
    return toy, Model(lambda ids: toy.logits(np.array(ids)), MASK, END, frozenset({END}), last)


LLADA2: dict[str, object] = {
    "unmasking": "low-confidence-dynamic", "unmasking_settings": {"threshold": 0.95},
}  # fmt: skip

CASES: list[tuple[int, dict[str, object], Rule]] = [
    (4, {"unmasking": "sequential"}, sequential(1)),
    (4, {"unmasking": "sequential", "tokens_per_step": 3}, sequential(3)),
    (4, {"unmasking": "low-confidence"}, static(1)),
    (4, {"unmasking": "low-confidence", "tokens_per_step": 2}, static(2)),
    (4, {"unmasking": "low-confidence-dynamic"}, dynamic(0.85, 1)),
    (8, {"unmasking": "low-confidence-dynamic", "tokens_per_step": 2}, dynamic(0.85, 2)),
    (4, {"unmasking": "entropy-bounded"}, entropy_bounded(0.35)),
    (8, {"unmasking": "entropy-bounded", "unmasking_settings": {"bound": 2.0}}, entropy_bounded(2)),
    (8, LLADA2, dynamic(0.95, 1)),
    (32, LLADA2, dynamic(0.95, 1)),
    (32, {"unmasking": "sub-blocks"}, fast_dllm_v2(1.0, 8)),
    (8, {"unmasking": "sub-blocks", "unmasking_settings": {"threshold": 0.6, "sub_block": 4}},
     fast_dllm_v2(0.6, 4)),
    (4, {"unmasking": "threshold", "unmasking_settings": {"threshold": 0.95}},
     stable_diffcoder(0.95)),
]  # fmt: skip


def responses(
    toy: ToyPredictor, settings: dict[str, object], prompts: list[list[int]] = PROMPTS
) -> list[tuple[list[int], int]]:
    """Return the responses to the prompts and the passes of each, with DiSE of every token; the
    same with a cache and without.
    """
    [exact, whole] = (
        [
            (list(answer.outputs[0].token_ids), answer.usage.nfe)
            for answer in LLM(toy).generate(
                prompts,
                SamplingParams(**settings, cache=cache, selector="response"),  # type: ignore[arg-type]
            )
        ]
        for cache in ("exact", "none")
    )
    assert exact == whole
    return exact


def published_passes(prompt: list[int], text: list[int], steps: int, length: int) -> int:
    """Return the passes of a loop that keeps keys: one over the prompt's whole blocks, its steps,
    and one over each finished block. LLaDA2.0's keeps none: its passes are its steps.
    """
    first = len(prompt) // length
    return (first > 0) + steps - (-(len(prompt) + len(text)) // length) - first


@pytest.mark.parametrize("last", ["masks", "alone"])
@pytest.mark.parametrize("max_tokens", [20, 25])
@pytest.mark.parametrize(("length", "settings", "rule"), CASES)
def test_a_sampler_writes_what_its_published_loop_writes(
    length: int, settings: dict[str, object], rule: Rule, max_tokens: int, last: LastBlockRule
) -> None:
    toy, model = toy_of(length, last)
    found = responses(toy, {"tokens_per_step": 1, "max_tokens": max_tokens, **settings})
    for prompt, (ids, num_passes) in zip(PROMPTS, found, strict=True):
        expected, num_steps = written(model, prompt, max_tokens, length, rule)
        assert ids == expected
        # Fewer where nothing behind the answer's end is written.
        is_cut = last == "masks" and (len(prompt) + max_tokens) % length > 0
        assert num_passes <= num_steps + 1
        assert num_passes == num_steps + 1 or ids[-1] == model.end or is_cut
        if settings is not LLADA2:
            assert num_passes <= published_passes(prompt, ids, num_steps, length)


@pytest.mark.parametrize("last", ["masks", "alone"])
@pytest.mark.parametrize("max_tokens", [20, 25])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"threshold": 0.5, "editing_threshold": 0.3},
        {"threshold": 0.3, "editing_threshold": 0.0, "max_post_steps": 2},
        {"threshold": 0.3, "editing_threshold": 0.0, "max_post_steps": 0},
    ],
)
@pytest.mark.parametrize("length", [4, 8])
def test_llada2_editing_writes_what_its_published_loop_writes(
    length: int, settings: dict[str, float], max_tokens: int, last: LastBlockRule
) -> None:
    toy, model = toy_of(length, last)
    whole = {"threshold": 0.95, "editing_threshold": 0.9, "max_post_steps": 16, **settings}
    expected = [written_with_edits(model, prompt, max_tokens, length, whole) for prompt in PROMPTS]
    sampler: dict[str, object] = {"unmasking": "llada2-editing", "unmasking_settings": settings}
    found = responses(toy, {"tokens_per_step": 1, "max_tokens": max_tokens, **sampler})
    for (ids, num_passes), (text, _, num_steps, is_calm) in zip(found, expected, strict=True):
        assert ids == text
        assert num_passes <= num_steps + (not is_calm)
        assert num_passes == num_steps + (not is_calm) or ids[-1] == model.end
    assert sum(edited for _, edited, _, _ in expected) or not settings, "nothing was edited"


@pytest.mark.parametrize("rate", [{}, {"tokens_per_step": 4}, {"steps": 10}])
@pytest.mark.parametrize(
    ("unmasking", "threshold"),
    [("sequential", None), ("low-confidence-dynamic", 0.85), ("llada2-editing", 0.95)],
)  # fmt: skip
def test_a_published_sampler_commits_one_token_a_step_unless_the_request_says_otherwise(
    unmasking: str, threshold: float | None, rate: dict[str, object]
) -> None:
    toy, model = toy_of(8)
    quota = 4 if rate else 1
    rule = sequential(quota) if threshold is None else dynamic(threshold, quota)
    # An editor that needs more than certainty to edit writes as its predecessor.
    settings = {"unmasking_settings": {"editing_threshold": 1.0}} if "edit" in unmasking else {}
    asked: dict[str, object] = {"max_tokens": 40, "unmasking": unmasking, **settings, **rate}
    prompt = list(range(8))
    [(ids, _)] = responses(toy, asked, [prompt])
    assert ids == written(model, prompt, 40, 8, rule)[0]
