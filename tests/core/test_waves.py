"""Adaptive best-of-n: the first answers of plain best-of-n, until one of them is sure enough."""

from __future__ import annotations

import pytest

from dise_core import LLM, InputError, SamplingParams
from dise_core.testing import ToyPredictor
from tests.core.test_calibration import made

PLAIN = SamplingParams(
    max_tokens=4, tokens_per_step=2, temperature=2.0, seed=5, best_of=8, selector="response"
)
WAVES = {1: [1, 2, 4, 8], 3: [3, 6, 8]}
"""How many answers there are after each wave of best-of-8, by n."""


def passes(drawn: int, n: int = 1) -> int:
    """Two steps and a score for each answer; those of one wave share the first, of masks alone."""
    return 2 * drawn + 1 + WAVES[n].index(drawn)


def adaptive(stop_at: float, n: int = 1) -> SamplingParams:
    return PLAIN.model_copy(update={"stop_at": stop_at, "n": n})


def scores_of(llm: LLM) -> list[float]:
    """The scores of the eight answers, in the order of their samples."""
    [answer] = llm.generate([[1, 2]], PLAIN.model_copy(update={"n": 8}))
    return [o.score.value for o in sorted(answer.outputs, key=lambda output: output.index)]


@pytest.mark.parametrize("n", [1, 3])
def test_it_stops_after_the_wave_in_which_an_answer_is_that_sure(n: int) -> None:
    llm = LLM(ToyPredictor())
    scores = scores_of(llm)
    for stop_at in [*scores, max(scores) + 0.1, min(scores) - 1]:
        [answer] = llm.generate([[1, 2]], adaptive(stop_at, n))
        drawn = next((k for k in WAVES[n] if max(scores[:k]) >= stop_at), 8)
        assert answer.usage.nfe == passes(drawn, n)
        best = sorted(range(drawn), key=lambda index: -scores[index])[:n]
        assert [output.index for output in answer.outputs] == best
        assert [output.score.value for output in answer.outputs] == [scores[i] for i in best]


def test_with_a_calibration_it_is_a_probability() -> None:
    plain = LLM(ToyPredictor())
    scores = scores_of(plain)
    calibration = made()
    llm = LLM(ToyPredictor(), calibration=calibration)
    likely = [calibration.probability(score) or 0.0 for score in scores]
    for stop_at in sorted({*likely, 0.01, 0.9}):
        [answer] = llm.generate([[1, 2]], adaptive(stop_at))
        drawn = next((k for k in WAVES[1] if max(likely[:k]) >= stop_at), 8)
        assert answer.usage.nfe == passes(drawn)
        assert answer.outputs[0].score.value == max(scores[:drawn])


@pytest.mark.parametrize("stop_at", [0.91, 1.0, 0.0, -0.5, 7.0])
def test_what_no_score_reaches_is_refused_before_any_pass(stop_at: float) -> None:
    predictor = ToyPredictor()
    llm = LLM(predictor, calibration=made())
    with pytest.raises(InputError, match=r"at most 0\.9000") as error:
        llm.generate([[1, 2]], adaptive(stop_at))
    assert error.value.parameter == "stop_at"
    assert predictor.batches == []


def test_a_number_to_stop_at_needs_answers_to_spare() -> None:
    for given in ({}, {"n": 4}, {"n": 4, "best_of": 4}):
        with pytest.raises(InputError, match="needs a best_of above n"):
            SamplingParams(stop_at=0.9, temperature=1.0, **given)
    for wrong in (float("nan"), float("inf"), "0.9x"):
        with pytest.raises(InputError, match="stop_at"):
            SamplingParams(stop_at=wrong, best_of=2)
