"""The scorer replay: what was written, read again from the text's own step map."""

import numpy as np
import pytest
from dise_likelihoods.replay import Replay

from dise_core import LLM, BlockCausal, InputError, SamplingParams, ScoringParams
from dise_core.testing import ToyPredictor, check_scorer

PROMPT = [1, 2, 3]


@pytest.mark.parametrize("aggregate", ["mean", "sum"])
def test_it_conforms(aggregate: str) -> None:
    check_scorer(Replay.model_validate({"aggregate": aggregate}))


@pytest.mark.parametrize("aggregate", ["mean", "sum"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("tokens_per_step", [1, 2, 5])
@pytest.mark.parametrize("selector", ["response", "last-4"])
def test_it_equals_written_at_a_pass_a_step(
    aggregate: str, temperature: float, tokens_per_step: int, selector: str
) -> None:
    params = SamplingParams(
        max_tokens=13, block_length=6, temperature=temperature, seed=5, selector=selector,
        tokens_per_step=tokens_per_step, scorer="written", length="fixed",
        scorer_settings={"aggregate": aggregate}, logprobs=None,
    )  # fmt: skip
    llm = LLM(ToyPredictor())
    [wrote] = llm.generate(PROMPT, params)
    [again] = llm.generate(PROMPT, params.model_copy(update={"scorer": "replay"}))
    first, second = wrote.outputs[0], again.outputs[0]
    assert first.token_ids == second.token_ids
    assert second.score.value == pytest.approx(first.score.value, abs=1e-5)
    assert second.score.positions.tolist() == first.score.positions.tolist()
    writing = second.writing
    assert writing is not None
    num_steps = len(np.unique(writing.steps[second.score.positions]))
    assert again.usage.nfe - wrote.usage.nfe == num_steps


def test_blocks_are_replayed_side_by_side() -> None:
    params = SamplingParams(
        max_tokens=13, seed=5, selector="response", scorer="written", length="fixed",
        tokens_per_step=1, logprobs=None,
    )  # fmt: skip
    llm = LLM(ToyPredictor(attention=BlockCausal(4)))
    [wrote] = llm.generate(PROMPT, params)
    [again] = llm.generate(PROMPT, params.model_copy(update={"scorer": "replay"}))
    assert len(again.outputs[0].token_ids) == 13
    expected = wrote.outputs[0].score.value
    assert again.outputs[0].score.value == pytest.approx(expected, abs=1e-5)
    assert (wrote.usage.nfe, again.usage.nfe - wrote.usage.nfe) == (13, 4)


def test_a_given_text_is_refused() -> None:
    with pytest.raises(InputError, match="replay reads how a text was written"):
        LLM(ToyPredictor()).score("abc", "def", ScoringParams(scorer="replay"))
