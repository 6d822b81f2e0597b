"""Block-causal checkpoints that write: the published loops' tokens, from cached blocks, with DiSE
of each block from the pass that keeps it.
"""

from pathlib import Path

import numpy as np
import pytest

from dise_core import LLM, SamplingParams, ScoringParams
from tests import reference_a2d
from tests.adapters.test_blocks import BLOCK, END, KINDS, folders, load
from tests.reference_blocks import reference_of
from tests.strategies.test_block_samplers import Model, Rule, dynamic, fast_dllm_v2, written

__all__ = ["folders"]

PROMPTS = [np.random.default_rng(n).integers(0, 50, n).tolist() for n in (1, 4, 11)]

SAMPLERS: dict[str, tuple[dict[str, object], Rule]] = {
    "low-confidence-dynamic": ({"threshold": 0.05}, dynamic(0.05, 1)),
    "sub-blocks": ({"threshold": 0.05, "sub_block": 2}, fast_dllm_v2(0.05, 2)),
}


def model_of(kind: str, folder: Path, ends: frozenset[int]) -> Model:
    reference = reference_of(kind, folder)

    def logits(ids: list[int]) -> np.ndarray:
        rows = reference.block_rows(ids, BLOCK).numpy()
        return rows if kind == "qwen3" else rows[np.maximum(np.arange(len(ids)) - 1, 0)]

    return Model(logits, reference_a2d.MASK, END, ends)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unmasking", SAMPLERS)
def test_a_checkpoint_writes_what_the_published_loop_writes(
    folders: dict[str, Path], kind: str, unmasking: str
) -> None:
    settings, rule = SAMPLERS[unmasking]
    llm = LLM(load(kind, folders[kind]))
    model = model_of(kind, folders[kind], llm.predictor.info.special.eos_ids)
    params = SamplingParams(
        max_tokens=18, tokens_per_step=1, unmasking=unmasking, unmasking_settings=settings
    )
    whole = params.model_copy(update={"cache": "none"})
    expected = [written(model, prompt, 18, BLOCK, rule)[0] for prompt in PROMPTS]
    cached, uncached = llm.generate(PROMPTS, params), llm.generate(PROMPTS, whole)
    assert [list(answer.outputs[0].token_ids) for answer in cached] == expected
    assert [list(answer.outputs[0].token_ids) for answer in uncached] == expected
    assert not any(answer.is_approximate for answer in (*cached, *uncached))


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
