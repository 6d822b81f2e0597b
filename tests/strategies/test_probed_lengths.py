"""The controllers that probe lengths before they write, on answers written by hand."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core import LLM, LengthController, Read, Reading, SamplingParams
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import MASK
from dise_core.writing.generation import Generation
from dise_strategies.lengths.cal import CAL
from dise_strategies.scorers.dise import DiSE
from dise_strategies.selectors.whole import Full
from tests.scripted_model import PROMPT, generated


class Scripted:
    """Answers a probe of L masks with confidences of values(L). Writes 3 and scores 0. probed: the
    lengths, one list for each pass.
    """

    def __init__(self, values: Callable[[int], float]) -> None:
        self._values = values
        self.probed: list[list[int]] = []

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        is_probe = all((read.token_ids[len(PROMPT) :] == MASK).all() for read in reads)
        if is_probe and not getattr(reads[0].readout, "forbidden", ()):
            self.probed.append([len(read.positions) for read in reads])
            return [self._answer(read) for read in reads]
        return [
            Reading(np.full(n, 3), np.zeros(n, np.float32), np.ones(n))
            for n in (len(read.positions) for read in reads)
        ]

    def _answer(self, read: Read) -> Reading:
        count = len(read.positions)
        values = np.full(count, self._values(count), np.float64)
        with np.errstate(divide="ignore"):
            return Reading(np.full(count, 3), np.log(values).astype(np.float32), values)


def run(controller: LengthController, script: Scripted, max_tokens: int) -> Generation:
    settings = {"max_tokens": max_tokens, "tokens_per_step": 99, "block_length": 99}
    scorer = SequenceScorer(DiSE(), Full())
    result, _ = generated(controller, script.read, 300, scorer, **settings)
    assert result.trace[-1].iteration == len(result.trace)
    return result


def cal(**settings: int) -> CAL:
    """Return CAL without calibration."""
    return CAL(background=(0, 0, 0, 0, 1), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("peak", "settings", "max_tokens", "probed", "length", "stopped_by"),
    [
        (12, {}, 64, [[8, 9, 10, 11], [12, 13, 14, 15], [16], [7, 6, 5, 4]], 12, "patience"),
        (5, {}, 64, [[8, 9, 10, 11], [12], [7, 6, 5, 4], [3, 2, 1]], 5, "patience"),
        (99, {}, 10, [[8, 9, 10], [7, 6, 5, 4]], 10, "max_tokens"),
        (0, {"start": 2}, 64, [[2, 3, 4, 5], [6], [1]], 1, "patience"),
        (9, {}, 3, [[3], [2, 1]], 3, "max_tokens"),
        (9, {"step": 3, "patience": 2}, 64, [[8, 11], [14], [5, 2]], 8, "patience"),
    ],
)
def test_cal_climbs_to_a_peak_both_ways(
    peak: int,
    settings: dict[str, int],
    max_tokens: int,
    probed: list[list[int]],
    length: int,
    stopped_by: str,
) -> None:
    script = Scripted(lambda n: 1 - abs(n - peak) / 100)
    result = run(cal(**settings), script, max_tokens)
    assert script.probed == probed
    assert (len(result.sequence.response), result.stopped_by) == (length, stopped_by)
    assert [step.num_tokens for step in result.trace] == [n for batch in probed for n in batch]


@given(
    st.lists(st.sampled_from([0.25, 0.5, 0.75]), min_size=1, max_size=24),
    st.integers(1, 24),
    st.integers(1, 5),
)
def test_cal_probes_and_chooses_what_one_probe_after_the_other_would(
    phi: list[float], start: int, patience: int
) -> None:
    start = min(start, len(phi))
    best, expected = start, [start]
    for direction in (1, -1):
        length, failures = start + direction, 0
        while 1 <= length <= len(phi) and failures < patience:
            expected.append(length)
            failures = 0 if phi[length - 1] > phi[best - 1] else failures + 1
            best = length if failures == 0 else best
            length += direction
    script = Scripted(lambda n: phi[n - 1])
    result = run(cal(start=start, patience=patience), script, len(phi))
    assert [n for batch in script.probed for n in batch] == expected
    assert len(result.sequence.response) == best


def test_cal_divides_by_the_published_background() -> None:
    [first, *_] = run(CAL(start=1), Scripted(lambda n: 0.5), 1).trace
    expected = 0.5 / (math.exp(-1.77) + 0.56 * math.exp(-0.06) + 0.24)
    assert first.score == pytest.approx(expected, rel=1e-6)


def test_the_passes_of_the_probes_stand_in_the_trace() -> None:
    params = SamplingParams(
        max_tokens=9, length="cal", tokens_per_step=9, block_length=9, cfg_scale=0.5
    )
    [answer] = LLM(ToyPredictor()).generate([[1, 2]], params)
    [output] = answer.outputs
    assert sum(step.nfe for step in output.trace) + 2 + 1 == answer.usage.nfe
