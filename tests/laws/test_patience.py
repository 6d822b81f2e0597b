"""What holds for Algorithm 1, whatever the scores are."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dise_core import Candidates, Read, Reading, SamplingParams, drive
from dise_core.noise import Noise
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.testing.toy_model import MASK, ToyPredictor
from dise_core.writing.denoise import Denoiser
from dise_core.writing.generation import Generation
from dise_strategies.lengths.dise_flexible import DiSEFlexible
from dise_strategies.scorers.dise import DiSE
from dise_strategies.selectors.whole import Full
from dise_strategies.unmasking.ranked import LowConfidence

scores = st.lists(st.integers(-8, 0).map(lambda n: n / 4), min_size=30, max_size=30)
limits = st.integers(1, 6)


class Scored:
    """Writes the token 5 everywhere, and scores each text with the next of the scores."""

    def __init__(self, values: list[float]) -> None:
        self._values = iter(values)
        self.num_masked: list[int] = []

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return [self._answer(read) for read in reads] if len(reads) == 1 else self._same(reads)

    def _same(self, reads: Sequence[Read]) -> list[Reading]:
        value = next(self._values)
        return [_reading(read, value) for read in reads]

    def _answer(self, read: Read) -> Reading:
        assert isinstance(read.readout, Candidates)
        self.num_masked.append(int((read.token_ids == MASK).sum()))
        return Reading(
            np.full(len(read.positions), 5),
            np.zeros(len(read.positions), np.float32),
            np.ones(len(read.positions)),
        )


def _reading(read: Read, value: float) -> Reading:
    return Reading(
        np.zeros(len(read.positions), np.int64), np.full(len(read.positions), value, np.float32)
    )


def run(
    values: list[float], controller: DiSEFlexible, max_length: int
) -> tuple[Generation, Scored]:
    model = Scored(values)
    params = SamplingParams(max_tokens=5, block_length=64, tokens_per_step=64)
    denoiser = Denoiser(ToyPredictor(max_length).info, LowConfidence(), Noise(0), params)
    plan = controller.generate(np.array([1, 2]), denoiser, SequenceScorer(DiSE(), Full()))
    return drive(plan, model.read), model


controllers = st.builds(
    DiSEFlexible, max_iterations=st.integers(1, 12), patience=limits, mask_size=st.integers(1, 9)
)


@given(scores, controllers, st.integers(7, 25))
def test_algorithm_1_keeps_its_bounds_and_returns_the_best_it_saw(
    values: list[float], controller: DiSEFlexible, max_length: int
) -> None:
    result, _ = run(values, controller, max_length)
    seen = [step.score for step in result.trace]
    assert seen == values[: len(seen)]
    assert len(seen) - 1 <= controller.max_iterations - 1
    assert result.evaluation.score.value == max(seen)
    assert len(result.sequence.response) == 5 + seen.index(max(seen))
    assert len(result.sequence) <= max_length
    failures = len(seen) - 1 - seen.index(max(seen))
    reasons = {
        "patience": failures == controller.patience,
        "max_iterations": len(seen) == controller.max_iterations and failures < controller.patience,
        "context": 2 + 5 + len(seen) - 1 == max_length and failures < controller.patience,
    }
    assert reasons[str(result.stopped_by)]


@given(scores, controllers)
def test_d_grows_by_one_in_each_iteration_and_never_reaches_into_the_prompt(
    values: list[float], controller: DiSEFlexible
) -> None:
    _, model = run(values, controller, 64)
    for t, num_masked in enumerate(model.num_masked[1:], start=2):
        length_before = 5 + t - 2
        assert num_masked == min(controller.mask_size + t - 2, length_before) + 1
