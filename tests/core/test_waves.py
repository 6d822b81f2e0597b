"""Adaptive best-of-n: the first answers of plain best-of-n, until one of them is sure enough."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dise_core import LLM, Calibration, Read, Reading, SamplingParams
from dise_core.constraints import constrained
from dise_core.errors import PlanError
from dise_core.plans.plan import drive
from dise_core.testing import ToyPredictor
from tests.calibrations import made

PLAIN = SamplingParams(
    max_tokens=4, tokens_per_step=2, temperature=2.0, seed=5, best_of=8, selector="response"
)
WAVES = {1: [1, 2, 4, 8], 3: [3, 6, 8]}
"""How many answers there are after each wave of best-of-8, by n."""


def passes(drawn: int) -> int:
    """Two steps and a score for each answer; all share the first, of masks alone."""
    return 2 * drawn + 1


def adaptive(stop_at: float, n: int = 1) -> SamplingParams:
    return PLAIN.model_copy(update={"stop_at": stop_at, "n": n})


def scores_of(llm: LLM) -> list[float]:
    """The scores of the eight answers, in the order of their samples."""
    [answer] = llm.generate([[1, 2]], PLAIN.model_copy(update={"n": 8}))
    return [o.score.value for o in sorted(answer.outputs, key=lambda output: output.index)]


@pytest.mark.parametrize("calibration", [None, made()])
@pytest.mark.parametrize("n", [1, 3])
def test_it_stops_after_the_wave_in_which_an_answer_is_that_sure(
    n: int, calibration: Calibration | None
) -> None:
    """With a calibration it is a probability."""
    scores, llm = scores_of(LLM(ToyPredictor())), LLM(ToyPredictor(), calibration=calibration)
    if calibration is None:
        sure, bounds = scores, [max(scores) + 0.1, min(scores) - 1]
    else:
        sure, bounds = [calibration.probability(score) or 0.0 for score in scores], [0.01, 0.9]
    for stop_at in {*sure, *bounds}:
        [answer] = llm.generate([[1, 2]], adaptive(stop_at, n))
        drawn = next((k for k in WAVES[n] if max(sure[:k]) >= stop_at), 8)
        assert answer.usage.nfe == passes(drawn)
        best = sorted(range(drawn), key=lambda index: -scores[index])[:n]
        assert [output.index for output in answer.outputs] == best
        assert [output.score.value for output in answer.outputs] == [scores[i] for i in best]


def texts_read(llm: LLM, params: SamplingParams) -> list[list[bytes]]:
    """The texts that each of the samples reads, the scored one last."""
    steps: dict[int, list[bytes]] = {}

    def read(reads: Sequence[Read]) -> Sequence[Reading]:
        for question in reads:
            if question.canvas is not None:
                steps.setdefault(question.canvas.sample, []).append(question.token_ids.tobytes())
        return llm.predictor.read(reads)

    answer = drive(llm.planner.generate([1, 2], params), read)
    for output in answer.outputs:
        steps[output.index].append(np.array([1, 2, *output.token_ids]).tobytes())
    return [steps[sample] for sample in range(len(steps))]


def passes_of(texts: list[list[bytes]], waves: list[int]) -> int:
    """Naive: each step of a wave reads the next texts of its samples, and every sample whose own
    next text is among them goes on too.
    """
    left, num_passes = [list(each) for each in texts], 0
    for start, end in zip([0, *waves], waves, strict=False):
        while any(left[start:end]):
            read = {each[0] for each in left[start:end] if each}
            num_passes += len(read)
            left = [
                each[1:] if each and each[0] in read else each for sample, each in enumerate(left)
            ]
    return num_passes


@pytest.mark.parametrize("temperature", [0.3, 0.6, 1.0])
def test_later_samples_share_the_passes_of_earlier_ones_while_they_are_the_same(
    temperature: float,
) -> None:
    llm = LLM(ToyPredictor())
    changes = {"temperature": temperature, "max_tokens": 8, "tokens_per_step": 1}
    plain = PLAIN.model_copy(update=changes)
    texts = texts_read(llm, plain.model_copy(update={"n": 8}))
    [together] = llm.generate([[1, 2]], plain)
    for drawn, stop_at in ((1, -100.0), (8, 1.0)):
        [answer] = llm.generate([[1, 2]], plain.model_copy(update={"stop_at": stop_at}))
        assert answer.usage.nfe == passes_of(texts, [k for k in WAVES[1] if k <= drawn])
    assert answer.outputs[0].token_ids == together.outputs[0].token_ids
    alone = sum(len(each) for each in texts)
    assert len(texts[0]) < answer.usage.nfe < alone


class Moody(ToyPredictor):
    """Fails on the second batch."""

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        if len(self.batches) == 1:
            self.batches.append([])
            raise RuntimeError("out of memory")
        return super().read(reads)


def test_a_failed_pass_ends_the_request_with_its_error() -> None:
    llm = LLM(Moody())
    with pytest.raises(PlanError, match="out of memory"):
        llm.generate([[1, 2]], adaptive(1.0))
    assert llm.generate([[1, 2]], adaptive(1.0))


def test_answers_whose_constraint_is_large_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    form = {"constraint": "regex", "constraint_settings": {"regex": "[a-h]{3}"}}
    params = PLAIN.model_copy(update={"n": 8, "seed": 3, **form})
    all_at_once, in_turns = ToyPredictor(), ToyPredictor()
    llm = LLM(all_at_once)
    [expected] = llm.generate([[1, 2]], params)
    built = llm.planner.prepared(params).constraint
    assert built is not None
    num_candidates = constrained.NUM_CANDIDATES + len(built.tokens.completion)
    of_one = params.max_tokens * num_candidates * built.tokens.num_states
    monkeypatch.setattr(constrained, "MAX_STEP", 2 * of_one)
    [answer] = LLM(in_turns).generate([[1, 2]], params)
    assert [output.token_ids for output in answer.outputs] == [
        output.token_ids for output in expected.outputs
    ]
    assert max(map(len, all_at_once.batches)) == 4 * max(map(len, in_turns.batches))
