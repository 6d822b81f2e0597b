"""Block-causal checkpoints that write: the published loops' tokens, from cached blocks, with DiSE
of each block from the pass that keeps it.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dise_core import LLM, SamplingParams, ScoringParams
from dise_core.models.attention import BlockCausal
from dise_core.models.info import LastBlockRule
from tests.block_checkpoints import BLOCK, KINDS, load
from tests.published import A2D_QWEN3, DIFFCODER, FAST_DLLM, LLADA2, RND1, SDAR, SDAR_MOE
from tests.reference_samplers import (
    Model,
    Rule,
    dynamic,
    fast_dllm_v2,
    sequential,
    stable_diffcoder,
    static,
    written,
    written_with_edits,
)
from tests.tiny_format import Published

PROMPTS = [np.random.default_rng(n).integers(0, 50, n).tolist() for n in (1, 4, 11)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_score_is_that_of_the_finished_text_and_most_of_it_is_never_computed_twice(
    folders: dict[str, Path], kind: str
) -> None:
    llm = LLM(load(kind, folders[kind]))
    params = SamplingParams(max_tokens=40, tokens_per_step=2, selector="response", length="fixed")
    for prompt, answer in zip(PROMPTS, llm.generate(PROMPTS, params), strict=True):
        [output] = answer.outputs
        [scored] = llm.score([prompt], [output.token_ids], ScoringParams(selector="response"))
        assert output.score.value == pytest.approx(scored.outputs[0].score.value, abs=1e-5)
        num_blocks = -(-(len(prompt) + 40) // BLOCK) - len(prompt) // BLOCK
        assert answer.usage.nfe <= 2 * num_blocks + 1
        assert answer.usage.nfe_computed < answer.usage.nfe / 2
    for token, again in zip(output.tokens, scored.outputs[0].tokens, strict=True):
        assert token.logprob == pytest.approx(again.logprob, abs=1e-4)


UNTIED = replace(FAST_DLLM, shape=replace(FAST_DLLM.shape, is_tied=False))
"""With tied embeddings its random weights end every answer at once."""

EDITING = {"threshold": 0.1, "editing_threshold": 0.05, "max_post_steps": 16}
PUBLISHED: list[tuple[Published, LastBlockRule, dict[str, object], Rule | None]] = [
    (SDAR, "masks", {"unmasking": "sequential"}, sequential(1)),
    (SDAR, "masks", {"unmasking": "low-confidence", "tokens_per_step": 1}, static(1)),
    (SDAR, "masks", {"unmasking": "low-confidence-dynamic"}, dynamic(0.85, 1)),
    (SDAR_MOE, "masks", {"unmasking": "low-confidence-dynamic",
                         "unmasking_settings": {"threshold": 0.05}}, dynamic(0.05, 1)),
    (LLADA2, "masks", {"unmasking": "low-confidence-dynamic",
                       "unmasking_settings": {"threshold": 0.95}}, dynamic(0.95, 1)),
    (LLADA2, "masks", {"unmasking": "llada2-editing", "unmasking_settings": EDITING}, None),
    (UNTIED, "masks", {"unmasking": "sub-blocks", "unmasking_settings": {"threshold": 0.07},
                       "length": "fixed"}, fast_dllm_v2(0.07, 8)),
    (DIFFCODER, "alone", {"unmasking": "threshold", "unmasking_settings": {"threshold": 0.95}},
     stable_diffcoder(0.95)),
    (A2D_QWEN3, "alone", {"unmasking": "low-confidence", "tokens_per_step": 1}, static(1)),
]  # fmt: skip
"""Formats with the options that name their published sampler, how it writes a short last block, and
its rule; None for LLaDA2.1's, which edits.
"""


@pytest.mark.parametrize("is_certain", [False, True])
@pytest.mark.parametrize(
    ("published", "last", "settings", "rule"), PUBLISHED,
    ids=[f"{each[0].family}-{each[2]['unmasking']}" for each in PUBLISHED],
)  # fmt: skip
def test_a_family_writes_what_its_authors_write_wherever_max_tokens_ends(
    tmp_path: Path,
    published: Published,
    last: LastBlockRule,
    settings: dict[str, object],
    rule: Rule | None,
    is_certain: bool,
) -> None:
    """At temperature 0, and at temperature 1 from the top one token, whose probability is then 1
    wherever the authors rank by what they draw from.
    """
    folder = published.write(tmp_path)
    llm, reference = LLM(str(folder)), published.reference(folder)
    ends = llm.predictor.info.special.eos_ids if "length" not in settings else frozenset()
    drawn = {"temperature": 1.0, "top_k": 1, "seed": 0} if is_certain else {}
    model = Model(
        lambda ids: reference.logprobs(ids).numpy(), published.mask_id, published.eos_id,
        ends, last, is_certain and last == "masks",
    )  # fmt: skip
    assert isinstance(published.attention, BlockCausal)
    length = published.attention.length
    prompts = [np.random.default_rng(n).integers(8, 35, n).tolist() for n in (1, 5, 12, 19)]
    params = SamplingParams(max_tokens=length + 5, **settings, **drawn)  # type: ignore[arg-type]
    whole = params.model_copy(update={"cache": "none"})
    answers = zip(llm.generate(prompts, params), llm.generate(prompts, whole), strict=True)
    for prompt, both in zip(prompts, answers, strict=True):
        asked = (model, prompt, length + 5, length)
        expected = written(*asked, rule)[0] if rule else written_with_edits(*asked, EDITING)[0]
        for answer in both:
            assert list(answer.outputs[0].token_ids) == expected
            assert not answer.is_approximate


@pytest.mark.parametrize("published", [RND1, SDAR, SDAR_MOE, LLADA2, FAST_DLLM])
def test_candidates_are_ranked_by_what_they_are_drawn_from_above_temperature_0(
    tmp_path: Path, published: Published
) -> None:
    """The top one token has the probability 1 there, so that a threshold takes all in one step."""
    llm = LLM(str(published.write(tmp_path)))
    params = SamplingParams(
        max_tokens=4, length="fixed", logprobs=None, seed=0, unmasking="threshold",
        unmasking_settings={"threshold": 0.99},
    )  # fmt: skip
    drawn = params.model_copy(update={"temperature": 1.0, "top_k": 1})
    certain, greedy = (llm.generate([[9] * 4], each)[0].usage.nfe for each in (drawn, params))
    assert certain <= 2
    assert greedy >= 5
