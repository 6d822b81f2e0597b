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

from dise_app.calibration.fitting import Labels
from dise_core.calibration import Threshold

Rule = Literal["sgr", "ltt"]

NUM_STEPS = 100
"""Candidates that LTT tests, at most."""

NUM_LOOKED_AT = 1000
"""Candidates among which the smallest bound is looked for, at most."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What is asked for: at most max_risk of the answers are wrong, with this confidence."""

    max_risk: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """The answers above the score of a rank: the threshold, how many there are, how many wrong."""

    score: float
    num_kept: int
    num_wrong: int


class Candidates:
    """The candidates of n labels by rank, 1 to n - 1, the surest first."""

    def __init__(self, labels: Labels) -> None:
        order = np.argsort(-labels.scores, kind="stable")
        self._scores = labels.scores[order]
        self._wrong = np.concatenate([[0], np.cumsum(~labels.is_right[order])])
        self.num_labels = len(labels)

    def at(self, rank: int) -> Candidate:
        """Return the answers that score above the one of this rank, counted from 0."""
        limit = self._scores[rank]
        num_kept = int(np.searchsorted(-self._scores, -limit, side="left"))
        above = float(np.nextafter(limit, np.inf))
        return Candidate(above, num_kept, int(self._wrong[num_kept]))


@dataclass(frozen=True, slots=True)
class Unmet:
    """No threshold keeps the promise: the smallest bound on the risk that any candidate has, and
    its coverage.
    """

    least_bound: float
    coverage: float


Found = Threshold | Unmet


def risk_bound(num_kept: int, num_wrong: int, delta: float) -> float:
    """Return Clopper and Pearson's bound b, where P(Bin(num_kept, b) <= num_wrong) = delta: the
    risk is above it with probability at most delta. 1 if nothing is kept.
    """
    from scipy.special import betaincinv

    if num_wrong >= num_kept:
        return 1.0
    return float(betaincinv(num_wrong + 1, num_kept - num_wrong, 1 - delta))


def p_value(num_kept: int, num_wrong: int, max_risk: float) -> float:
    """Return the Hoeffding-Bentkus p-value of "the risk is above max_risk": min(exp(-n h(R, a)), e
    P(Bin(n, a) <= n R)), with h the relative entropy and R at most a. 1 if nothing is kept.
    """
    from scipy.special import bdtr, rel_entr

    if num_kept == 0:
        return 1.0
    share = min(num_wrong / num_kept, max_risk)
    entropy = rel_entr(share, max_risk) + rel_entr(1 - share, 1 - max_risk)
    tail = math.e * bdtr(num_wrong, num_kept, max_risk)
    return float(min(1.0, math.exp(-num_kept * entropy), tail))


def sgr(candidates: Candidates, promise: Promise) -> Found:
    """Selection with guaranteed risk (Geifman and El-Yaniv, 2017): binary search over the ranks,
    with the confidence shared among its steps.
    """
    num_steps = max(1, math.ceil(math.log2(candidates.num_labels)))
    delta = (1 - promise.confidence) / num_steps
    low, high = 1, candidates.num_labels - 1
    best: Candidate | None = None
    for _ in range(num_steps):
        middle = -(-(low + high) // 2)
        here = candidates.at(middle)
        if risk_bound(here.num_kept, here.num_wrong, delta) <= promise.max_risk:
            best = here if best is None or here.num_kept > best.num_kept else best
            low = min(middle + 1, candidates.num_labels - 1)
        else:
            high = max(middle - 1, 1)
    bound = 1.0 if best is None else risk_bound(best.num_kept, best.num_wrong, delta)
    return _found("sgr", candidates, promise, best, bound, delta)


def ltt(candidates: Candidates, promise: Promise) -> Found:
    """Learn then test (Angelopoulos et al., 2021) by a fixed sequence: from the smallest number of
    answers that passes with half of the allowed errors towards all, until one fails.
    """
    delta, total = 1 - promise.confidence, candidates.num_labels
    best, its_p = None, 1.0
    for rank in range(_first_rank(promise, total), total, max(1, total // NUM_STEPS)):
        here = candidates.at(rank)
        found = p_value(here.num_kept, here.num_wrong, promise.max_risk)
        if found > delta:
            break
        best, its_p = here, found
    return _found("ltt", candidates, promise, best, its_p, delta)


RULES: Mapping[Rule, Callable[[Candidates, Promise], Found]] = {"sgr": sgr, "ltt": ltt}


def threshold_of(rule: Rule, labels: Labels, promise: Promise) -> Found:
    """Return the threshold with the largest coverage that the rule allows, on one answer to each
    question.
    """
    return RULES[rule](Candidates(labels.first(1)), promise)


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


def _found(
    rule: Rule,
    candidates: Candidates,
    promise: Promise,
    best: Candidate | None,
    bound: float,
    delta: float,
) -> Found:
    total = candidates.num_labels
    if best is None:
        return _nearest(candidates, delta)
    return Threshold(
        score=best.score,
        rule=rule,
        max_risk=promise.max_risk,
        confidence=promise.confidence,
        num_labels=total,
        coverage=best.num_kept / total,
        risk=best.num_wrong / best.num_kept,
        bound=bound,
    )


def _nearest(candidates: Candidates, delta: float) -> Unmet:
    total = candidates.num_labels
    ranks = np.linspace(1, total - 1, min(total - 1, NUM_LOOKED_AT)).astype(np.int64)
    each = [candidates.at(rank) for rank in ranks.tolist()]
    bounds = [risk_bound(one.num_kept, one.num_wrong, delta) for one in each]
    least = int(np.argmin(bounds))
    return Unmet(bounds[least], each[least].num_kept / total)
