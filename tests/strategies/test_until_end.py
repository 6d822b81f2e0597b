"""Responses that are written block by block until they end. Token for token:
test_block_samplers.py.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dise_core import LLM, BlockCausal, Denoiser, SamplingParams, ScoringParams, drive
from dise_core.models.completion import completed
from dise_core.models.info import LastBlockRule
from dise_core.noise import Noise
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, MASK
from dise_strategies.unmasking.ranked import LowConfidence
from tests.recorded import Recorded


class Counting(ToyPredictor):
    """Writes 1, 2, 3, ... by position, and an end token from position `end_from` on."""

    def __init__(self, end_from: int) -> None:
        super().__init__(attention=BlockCausal(4))
        self._end_from = end_from

    def logits(self, ids: np.ndarray) -> np.ndarray:
        positions = np.arange(len(ids))
        logits = np.zeros((len(ids), 12))
        logits[positions, np.where(positions < self._end_from, positions % 10, END)] = 9.0
        return logits


@pytest.mark.parametrize(
    ("end_from", "prompt_length", "max_tokens", "expected", "reason"),
    [
        (9, 2, 20, [2, 3, 4, 5, 6, 7, 8, END], "stop"),
        (8, 2, 20, [2, 3, 4, 5, 6, 7, END], "stop"),
        (2, 2, 20, [END], "stop"),
        (30, 2, 9, [2, 3, 4, 5, 6, 7, 8, 9, 0], "length"),
        (30, 4, 8, [4, 5, 6, 7, 8, 9, 0, 1], "length"),
        (30, 5, 1, [5], "length"),
        (6, 5, 1, [5], "length"),
        (6, 5, 2, [5, END], "stop"),
    ],
)
def test_a_response_ends_with_its_first_end_token_or_at_max_tokens(
    end_from: int, prompt_length: int, max_tokens: int, expected: list[int], reason: str
) -> None:
    prompt = list(range(prompt_length))
    [answer] = LLM(Counting(end_from)).generate([prompt], SamplingParams(max_tokens=max_tokens))
    [output] = answer.outputs
    assert list(output.token_ids) == expected
    assert (output.finish_reason, output.length_controller) == (reason, "until-end")


def test_an_end_token_of_the_prompt_ends_nothing() -> None:
    [answer] = LLM(Counting(30)).generate([[0, END, 2]], SamplingParams(max_tokens=5))
    assert list(answer.outputs[0].token_ids) == [3, 4, 5, 6, 7]


def test_no_pass_is_made_behind_the_end() -> None:
    """Blocks of 4 at one token a step, of which only those before the end token are committed."""
    toy = Counting(9)
    params = SamplingParams(max_tokens=20, tokens_per_step=1, unmasking="sequential")
    [answer] = LLM(toy).generate([[0, 1]], params)
    assert answer.usage.nfe == 2 + 4 + 2 + 1
    assert max(len(ids) for batch in toy.batches for ids in batch) == 12


def test_until_end_writes_the_beginning_of_what_fixed_writes() -> None:
    for seed in range(5):
        toy = ToyPredictor(seed=seed, attention=BlockCausal(4))
        params = SamplingParams(max_tokens=21, temperature=1.0, seed=seed)
        fixed = params.model_copy(update={"length": "fixed"})
        [ended], [whole] = LLM(toy).generate([[1, 2]], params), LLM(toy).generate([[1, 2]], fixed)
        written = ended.outputs[0].token_ids
        assert written == whole.outputs[0].token_ids[: len(written)]
        assert len(whole.outputs[0].token_ids) == 21


def test_best_of_and_algorithm_1_work_on_a_block_causal_model() -> None:
    toy = ToyPredictor(attention=BlockCausal(4))
    several = SamplingParams(max_tokens=14, temperature=1.0, n=2, best_of=4, seed=1)
    [answer] = LLM(toy).generate([[1, 2, 3]], several)
    values = [output.score.value for output in answer.outputs]
    assert len(values) == 2
    assert values == sorted(values, reverse=True)
    flexible = SamplingParams(max_tokens=6, length="dise-flexible", selector="response")
    [answer] = LLM(toy).generate([[1, 2, 3]], flexible)
    [output] = answer.outputs
    assert sum(step.nfe for step in output.trace) == answer.usage.nfe
    for ids in itertools.chain(*toy.batches):  # masks stand in a text's last block alone
        masked = np.flatnonzero(ids == MASK)
        assert len(masked) == 0 or masked[0] // 4 == (len(ids) - 1) // 4
    again = LLM(toy).score([[1, 2, 3]], [output.token_ids], ScoringParams(selector="response"))
    assert output.score.value == pytest.approx(again[0].outputs[0].score.value, abs=1e-6)


def test_its_own_block_length_may_be_named() -> None:
    llm = LLM(ToyPredictor(attention=BlockCausal(4)))
    llm.generate([[1, 2]], SamplingParams(block_length=4, max_tokens=5))
    last = ScoringParams(selector="last-block")
    [answer] = llm.score([[1, 2]], [[3, 4, 5, 6, 7]], last)
    assert answer.outputs[0].score.positions.tolist() == [4, 5, 6]


def test_models_without_blocks_keep_fixed() -> None:
    [answer] = LLM(ToyPredictor()).generate([[1, 2]], SamplingParams(max_tokens=5))
    assert answer.outputs[0].length_controller == "fixed"
    assert (answer.cache, len(answer.outputs[0].token_ids)) == ("none", 5)


@pytest.mark.parametrize(
    ("last", "behind"), [("masks", [MASK] * 3), ("alone", []), ("ends", [END] * 3)]
)
def test_the_last_block_of_a_text_is_written_as_the_model_says(
    last: LastBlockRule, behind: list[int]
) -> None:
    """A text of 9 tokens in blocks of 4; the finished text is always read with end tokens."""
    toy = ToyPredictor(attention=BlockCausal(4))
    toy.info = replace(toy.info, last_block=last)
    params = SamplingParams(max_tokens=6, selector="response", length="fixed")
    [answer] = LLM(toy).generate([[1, 2, 3]], params)
    drawn = [ids for batch in toy.batches for ids in batch if MASK in ids]
    first = next(ids for ids in drawn if len(ids) >= 9)
    assert first[8:].tolist() == [MASK, *behind]
    assert [len(batch[0]) for batch in toy.batches][-1] == 12
    assert len(answer.outputs[0].token_ids) == 6
    [again] = LLM(toy).score(
        [[1, 2, 3]], [answer.outputs[0].token_ids], ScoringParams(selector="response")
    )
    assert answer.outputs[0].score.value == pytest.approx(again.outputs[0].score.value, abs=1e-6)


@pytest.mark.parametrize("max_tokens", [6, 7])
def test_no_mask_stands_beyond_the_longest_text(max_tokens: int) -> None:
    toy = ToyPredictor(10, attention=BlockCausal(4))
    params = SamplingParams(max_tokens=max_tokens, length="fixed")
    [answer] = LLM(toy).generate([[1, 2, 3]], params)
    assert len(answer.outputs[0].token_ids) == max_tokens
    assert max(len(ids) for batch in toy.batches for ids in batch) == 10


@pytest.mark.parametrize("last", ["masks", "alone"])
def test_what_is_rewritten_stands_in_a_finished_text(last: LastBlockRule) -> None:
    toy = ToyPredictor(attention=BlockCausal(4))
    toy.info = replace(toy.info, last_block=last)
    denoiser = Denoiser(toy.info, LowConfidence(), Noise(0), SamplingParams(max_tokens=3))
    text = denoiser.text(np.arange(6), 3)
    asked = Recorded(toy.read)
    assert len(drive(denoiser.rewrite(text, np.array([4])), asked)) == 6
    first = completed(asked.reads[0], toy.info)
    assert first.token_ids.tolist() == [0, 1, 2, 3, MASK, 5, END, END]
