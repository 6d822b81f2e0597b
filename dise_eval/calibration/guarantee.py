"""Thresholds with a promise: with a given confidence, at most a given share of the answers at or
above the threshold are wrong.

The labels must be independent draws of what will be asked: one answer for each question. A
candidate keeps the answers above the score of a given rank; given that score, those kept are
independent draws from all answers above it, whatever ties there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from dise_core.errors import InputError
from dise_core.scoring.calibration import Threshold
from dise_eval.calibration.fitting import Labels
from dise_eval.statistics.metrics import Scores

Rule = Literal["sgr", "ltt"]
Counts = npt.NDArray[np.int64]

NUM_STEPS = 100


@dataclass(frozen=True, slots=True)
class Promise:
    """What is asked for: at most max_risk of the answers are wrong, with this confidence."""

    max_risk: float
    confidence: float


@dataclass(frozen=True, slots=True, eq=False)
class RankedLabels:
    """What each candidate keeps of n labels, by its rank from 1 to n - 1, the surest first: the
    threshold float64, how many answers int64, and how many wrong ones int64, [n - 1] each.
    """

    thresholds: Scores
    num_kept: Counts
    num_wrong: Counts

    @classmethod
    def of(cls, labels: Labels) -> RankedLabels:
        """Return the candidates: at each rank what scores above the answer of that rank."""
        order = np.argsort(-labels.scores, kind="stable")
        scores = labels.scores[order]
        wrong = np.concatenate([[0], np.cumsum(~labels.is_right[order])])
        num_kept = np.searchsorted(-scores, -scores[1:], side="left")
        return cls(np.nextafter(scores[1:], np.inf), num_kept, wrong[num_kept])

    @property
    def num_labels(self) -> int:
        return len(self.thresholds) + 1

    def threshold(self, rank: int, rule: Rule, promise: Promise, bound: float) -> Threshold:
        num_kept, num_wrong = int(self.num_kept[rank - 1]), int(self.num_wrong[rank - 1])
        return Threshold(
            score=float(self.thresholds[rank - 1]),
            rule=rule,
            max_risk=promise.max_risk,
            confidence=promise.confidence,
            num_labels=self.num_labels,
            coverage=num_kept / self.num_labels,
            risk=num_wrong / num_kept,
            bound=bound,
        )

    def unmet(self, rule: Rule, promise: Promise, delta: float) -> InputError:
        """Return the error that no threshold keeps the promise, with by how much."""
        bounds = risk_bound(self.num_kept, self.num_wrong, delta)
        least = int(np.argmin(bounds))
        return InputError(
            f"no threshold keeps the risk at {promise.max_risk:.1%} with "
            f"{promise.confidence:.0%} confidence by {rule}: the smallest bound on "
            f"{self.num_labels} questions is {bounds[least]:.1%}, "
            f"{100 * (bounds[least] - promise.max_risk):.1f} points above, where "
            f"{self.num_kept[least] / self.num_labels:.1%} are answered; label more questions, or "
            "allow more risk",
            "max_risk",
        )


def risk_bound(num_kept: ArrayLike, num_wrong: ArrayLike, delta: float) -> Scores:
    """Return Clopper and Pearson's bounds b, where P(Bin(num_kept, b) <= num_wrong) = delta: the
    risk is above it with probability at most delta. 1 if nothing right is kept.
    """
    from scipy.special import betaincinv

    kept, wrong = np.asarray(num_kept), np.asarray(num_wrong)
    bounds: Scores = betaincinv(wrong + 1, np.maximum(kept - wrong, 1), 1 - delta)
    return np.where(wrong >= kept, 1.0, bounds)


def p_value(num_kept: int, num_wrong: int, max_risk: float) -> float:
    """Return the Hoeffding-Bentkus p-value of "the risk is above max_risk": min(exp(-n h(R, a)), e
    P(Bin(n, a) <= n R)), with h the relative entropy and R at most a. 1 if nothing is kept.

    MAPIE's is the same, but takes R and rounds n R up, by one where R was rounded.
    """
    from scipy.special import bdtr, rel_entr

    if num_kept == 0:
        return 1.0
    share = min(num_wrong / num_kept, max_risk)
    entropy = rel_entr(share, max_risk) + rel_entr(1 - share, 1 - max_risk)
    tail = math.e * bdtr(num_wrong, num_kept, max_risk)
    return float(min(1.0, math.exp(-num_kept * entropy), tail))


def sgr(ranks: RankedLabels, promise: Promise) -> Threshold:
    """Selection with guaranteed risk (Geifman and El-Yaniv, 2017): binary search over the ranks."""
    num_steps = max(1, math.ceil(math.log2(ranks.num_labels)))
    delta = (1 - promise.confidence) / num_steps
    bounds = risk_bound(ranks.num_kept, ranks.num_wrong, delta)
    low, high, best = 1, ranks.num_labels - 1, 0
    for _ in range(num_steps):
        middle = -(-(low + high) // 2)
        if bounds[middle - 1] <= promise.max_risk:
            if not best or ranks.num_kept[middle - 1] > ranks.num_kept[best - 1]:
                best = middle
            low = min(middle + 1, ranks.num_labels - 1)
        else:
            high = max(middle - 1, 1)
    if not best:
        raise ranks.unmet("sgr", promise, delta)
    return ranks.threshold(best, "sgr", promise, float(bounds[best - 1]))


def ltt(ranks: RankedLabels, promise: Promise) -> Threshold:
    """Learn then test (Angelopoulos et al., 2021) by a fixed sequence: from the smallest number of
    answers that passes with half of the allowed errors towards all, until one fails.
    """
    delta, total = 1 - promise.confidence, ranks.num_labels
    best, least = 0, 1.0
    for rank in range(_first_rank(promise, total), total, max(1, total // NUM_STEPS)):
        kept, wrong = int(ranks.num_kept[rank - 1]), int(ranks.num_wrong[rank - 1])
        p = p_value(kept, wrong, promise.max_risk)
        if p > delta:
            break
        best, least = rank, p
    if not best:
        raise ranks.unmet("ltt", promise, delta)
    return ranks.threshold(best, "ltt", promise, least)


RULES: Mapping[Rule, Callable[[RankedLabels, Promise], Threshold]] = {"sgr": sgr, "ltt": ltt}


def threshold_of(rule: Rule, labels: Labels, promise: Promise) -> Threshold:
    """Return the rule's threshold of largest coverage, on one answer to each question. Raises
    InputError, with by how much, if none keeps the promise.
    """
    return RULES[rule](RankedLabels.of(labels.first(1)), promise)


def _first_rank(promise: Promise, total: int) -> int:
    """Return the first number of answers at which half of the allowed errors pass; it depends on
    no label. total if there is none.
    """
    delta = 1 - promise.confidence
    passes = (
        rank
        for rank in range(1, total)
        if p_value(rank, math.floor(rank * promise.max_risk / 2), promise.max_risk) <= delta
    )
    return next(passes, total)
