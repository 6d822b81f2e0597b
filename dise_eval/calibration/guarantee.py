"""Thresholds with a promise: with a given confidence, at most a given share of the
answers at or above the threshold are wrong.

The labels must be independent draws of what will be asked: one answer for each question.
A candidate keeps the answers above the score of a given rank; given that score, those
kept are independent draws from all answers above it, whatever ties there are. So the
number of wrong ones is binomial, and so few of them are improbable, at most delta, where
the risk is above the promise.

A rule tests some of the ranks, each at its part of delta. A test that passes hands its
part on to the next, and one that fails loses it (Wiens and Dmitrienko's fallback
procedure, 2005): where the risk grows with the rank, the parts of all tests that may pass
wrongly add up to at most delta.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dise_eval.calibration.fitting import Labels
from dise_eval.statistics.metrics import Scores
from dise_eval.statistics.resampling import upper_bound

Rule = Literal["sgr", "ltt"]
Counts = npt.NDArray[np.int64]

NUM_STEPS = 6
"""The tests of sgr that add a part of delta. Later ones have what was passed on."""

SHARES = (0.6, 0.2, 0.2)
"""The parts of delta that ltt's starts have, the first one first."""

NUM_TESTS = 100
"""About how many ranks ltt tests."""


@dataclass(frozen=True, slots=True)
class Promise:
    """At most max_risk of the answers are wrong, with this confidence."""

    max_risk: float
    confidence: float

    @property
    def delta(self) -> float:
        return 1 - self.confidence


class RankTrial(NamedTuple):
    """A rank, from 1, that was tested at a part delta of what may fail: how many answers
    are kept, how many of them are wrong, and how probable at most so few are if the risk
    is above the promise, P(Bin(num_kept, max_risk) <= num_wrong).
    """

    rank: int
    num_kept: int
    num_wrong: int
    p_value: float
    delta: float

    @property
    def passes(self) -> bool:
        return self.p_value <= self.delta

    @property
    def bound(self) -> float:
        """The risk at which so few wrong answers are as improbable as delta."""
        return upper_bound(self.num_wrong, self.num_kept - self.num_wrong, self.delta)


@dataclass(frozen=True, slots=True, eq=False)
class RankedLabels:
    """What each candidate keeps of n labels, by its rank from 1 to n - 1, the surest
    first: the threshold float64, how many answers int64, and how many wrong ones int64,
    [n - 1] each.
    """

    thresholds: Scores
    num_kept: Counts
    num_wrong: Counts

    @classmethod
    def of(cls, labels: Labels) -> RankedLabels:
        """Return each rank's candidate: the answers above the score of that rank."""
        order = np.argsort(-labels.scores, kind="stable")
        scores = labels.scores[order]
        wrong = np.concatenate([[0], np.cumsum(~labels.is_right[order])])
        # Kept are the answers strictly above the score of a rank. Those at it chose the threshold,
        # so they are no independent draws given it, and a tie goes out as a whole.
        num_kept = np.searchsorted(-scores, -scores[1:], side="left")
        return cls(np.nextafter(scores[1:], np.inf), num_kept, wrong[num_kept])

    @property
    def num_labels(self) -> int:
        return len(self.thresholds) + 1

    def trial(self, rank: int, max_risk: float, delta: float) -> RankTrial:
        from scipy.special import bdtr

        num_kept, num_wrong = int(self.num_kept[rank - 1]), int(self.num_wrong[rank - 1])
        p_value = float(bdtr(num_wrong, num_kept, max_risk))
        return RankTrial(rank, num_kept, num_wrong, p_value, delta)


def sgr(ranks: RankedLabels, promise: Promise) -> Iterator[RankTrial]:
    """Selection with guaranteed risk (Geifman and El-Yaniv, 2017): binary search for the
    largest rank, from the smallest that can pass.
    """
    share = promise.delta / NUM_STEPS
    low, high, delta = fewest(promise.max_risk, share), ranks.num_labels - 1, 0.0
    for step in itertools.count():
        delta += share if step < NUM_STEPS else 0.0
        if low > high or delta == 0:
            return
        middle = -(-(low + high) // 2)
        trial = ranks.trial(middle, promise.max_risk, delta)
        yield trial
        # A failed test takes its part of delta with it. A passed one's goes on: if its risk is
        # within the promise nothing was spent, and if not, the promise is broken already.
        if trial.passes:
            low = middle + 1
        else:
            high, delta = middle - 1, 0.0


def ltt(ranks: RankedLabels, promise: Promise) -> Iterator[RankTrial]:
    """Learn then test (Angelopoulos et al., 2021) by fixed sequences: from each of
    several starts towards all answers, until one fails. Wrong answers near the top end
    the first of them alone.
    """
    total, delta = ranks.num_labels, 0.0
    starts = _starts(promise, total)
    steps = range(min(starts, default=total), total, max(1, total // NUM_TESTS))
    for rank in sorted({*starts, *steps}):
        delta += starts.get(rank, 0.0)
        if delta > 0:
            trial = ranks.trial(rank, promise.max_risk, delta)
            yield trial
            delta = delta if trial.passes else 0.0


def fewest(max_risk: float, delta: float) -> int:
    """Return how many answers pass at delta if none of them is wrong."""
    return math.ceil(math.log(delta) / math.log1p(-max_risk))


def _starts(promise: Promise, total: int) -> Mapping[int, float]:
    """Return where ltt starts, below total, and the part of delta of each: at the fewest
    answers that pass with half of the allowed errors or, if there are not so many, with
    none; at half of all answers, and halfway there. It depends on no label.
    """
    from scipy.special import bdtr

    part, max_risk, ranks = promise.delta * SHARES[0], promise.max_risk, np.arange(1, total)
    passing = ranks[bdtr(np.floor(ranks * max_risk / 2), ranks, max_risk) <= part]
    first = int(passing[0]) if len(passing) else fewest(max_risk, promise.delta)
    if not len(passing) or first >= total // 2:  # one start, which needs all of delta
        return {first: promise.delta} if first < total else {}
    starts: dict[int, float] = {}
    for rank, share in zip((first, (first + total // 2) // 2, total // 2), SHARES, strict=True):
        starts[rank] = starts.get(rank, 0.0) + promise.delta * share
    return starts


RULES: Mapping[Rule, Callable[[RankedLabels, Promise], Iterator[RankTrial]]] = {
    "sgr": sgr,
    "ltt": ltt,
}
