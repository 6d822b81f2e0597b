"""E-AURC, AUGRC, PRR up to half, adaptive and smooth ECE and the Brier skill against naive loops,
on random data with ties.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dise_app.evaluation import metrics
from dise_app.evaluation.metrics import Rights, Scores
from dise_app.evaluation.reliability import bins


def tied(seed: int, size: int = 60) -> tuple[Scores, Rights]:
    """Scores in steps of 0.5, so that most are tied."""
    random = np.random.default_rng(seed)
    is_right = random.random(size) < 0.6
    return np.round(2 * (random.normal(size=size) + is_right)) / 2, is_right


def probable(seed: int, size: int = 200) -> tuple[Scores, Rights]:
    random = np.random.default_rng(seed)
    probabilities = np.round(random.random(size), 2)
    probabilities[:3] = (0.0, 1.0, 1.0)
    return probabilities, random.random(size) < probabilities**2


def errors_kept(scores: Scores, is_right: Rights) -> list[float]:
    """The expected number of wrong answers among the k surest, k = 1..n, if ties are in any order:
    a group of equals of which j are kept has j / its size of its errors.
    """
    kept = []
    for k in range(1, len(scores) + 1):
        errors, left = 0.0, k
        for value in sorted(set(scores.tolist()), reverse=True):
            group = [not right for s, right in zip(scores, is_right, strict=True) if s == value]
            taken = min(left, len(group))
            errors += sum(group) * taken / len(group)
            left -= taken
        kept.append(errors)
    return kept


@pytest.mark.parametrize("seed", range(4))
def test_areas_agree_with_loops_over_coverages(seed: int) -> None:
    scores, is_right = tied(seed)
    n, kept = len(scores), errors_kept(scores, is_right)
    num_right = int(is_right.sum())
    area = sum(errors / k for k, errors in enumerate(kept, 1)) / n
    oracle = sum(max(0, k - num_right) / k for k in range(1, n + 1)) / n
    assert metrics.eaurc(scores, is_right) == pytest.approx(area - oracle)
    assert metrics.augrc(scores, is_right) == pytest.approx(sum(kept) / n**2)
    half = range(n - n // 2 + 1, n + 1)
    mean = np.mean([kept[k - 1] / k for k in half])
    best = np.mean([max(0, k - num_right) / k for k in half])
    chance = 1 - num_right / n
    expected = (chance - mean) / (chance - best)
    assert metrics.prr(scores, is_right, 0.5) == pytest.approx(expected)
    assert metrics.prr_half(scores, is_right) == metrics.prr(scores, is_right, 0.5)


def test_prr_up_to_half_of_all_orders_of_three_ties() -> None:
    """Three equal scores of six: the mean of the kept risk over all 3! orders."""
    scores = np.array([3.0, 2.0, 1.0, 1.0, 1.0, 0.0])
    is_right = np.array([True, True, False, True, True, False])
    risks = []
    for order in itertools.permutations([2, 3, 4]):
        wrong = ~is_right[[0, 1, *order, 5]]
        risks.append(np.mean([wrong[:k].mean() for k in (4, 5, 6)]))
    chance, oracle = 1 / 3, np.mean([0, 1 / 5, 2 / 6])
    expected = (chance - np.mean(risks)) / (chance - oracle)
    assert metrics.prr(scores, is_right, 0.5) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(4))
def test_adaptive_ece_agrees_with_a_loop_that_keeps_ties_together(seed: int) -> None:
    probabilities, is_right = probable(seed)
    n = len(probabilities)
    in_bin: dict[int, list[tuple[float, bool]]] = {}
    for p, right in zip(probabilities.tolist(), is_right.tolist(), strict=True):
        smaller = sum(other < p for other in probabilities.tolist())
        in_bin.setdefault(smaller * 10 // n, []).append((p, right))
    expected = sum(
        len(each) / n * abs(np.mean([p for p, _ in each]) - np.mean([right for _, right in each]))
        for each in in_bin.values()
    )
    assert metrics.adaptive_ece(probabilities, is_right) == pytest.approx(expected)
    assert len(in_bin) == 10


def smoothed(width: float, probabilities: Scores, is_right: Rights) -> float:
    """The integral over [0, 1] of |sum of residuals times the reflected Gaussian| / n, by the
    midpoint rule; reflections at 0 and 1 repeat with period 2.
    """
    middles = (np.arange(2000) + 0.5) / 2000
    total = np.zeros(2000)
    for p, right in zip(probabilities.tolist(), is_right.tolist(), strict=True):
        for centre in (base + sign * p for base in (-2, 0, 2) for sign in (-1, 1)):
            total += (right - p) * np.exp(-(((middles - centre) / width) ** 2) / 2)
    return float(np.abs(total).mean() / len(probabilities) / (width * math.sqrt(2 * math.pi)))


@pytest.mark.parametrize("seed", range(2))
def test_smooth_ece_solves_its_equation_for_the_naive_kernel(seed: int) -> None:
    probabilities, is_right = probable(seed)
    found = metrics.smooth_ece(probabilities, is_right)
    assert 0.02 < found < 0.3
    assert smoothed(found, probabilities, is_right) == pytest.approx(found, abs=2e-3)


def test_smooth_ece_of_one_constant_is_near_its_gap_and_of_the_truth_near_0() -> None:
    """All mass at one probability: smoothing loses nothing, so that smECE(s) is the gap for all
    widths.
    """
    is_right = np.arange(1000) % 10 < 7
    assert metrics.smooth_ece(np.full(1000, 0.5), is_right) == pytest.approx(0.2, abs=1e-3)
    assert metrics.smooth_ece(np.full(1000, 0.7), is_right) < 1e-3
    assert metrics.smooth_ece(is_right.astype(float), is_right) < 1e-3
    assert metrics.smooth_ece(np.ones(50), np.zeros(50, bool)) == pytest.approx(1)


def test_brier_skill() -> None:
    probabilities, is_right = probable(0)
    rate = is_right.mean()
    worst = np.mean([(rate - right) ** 2 for right in is_right.tolist()])
    mine = np.mean([(p - r) ** 2 for p, r in zip(probabilities, is_right.tolist(), strict=True)])
    assert metrics.brier_skill(probabilities, is_right) == pytest.approx(1 - mine / worst)
    assert metrics.brier_skill(np.full(200, rate), is_right) == pytest.approx(0)
    assert math.isnan(metrics.brier_skill(np.ones(3), np.ones(3, bool)))


def test_bins_of_a_diagram_count_the_answers_of_a_question_as_one() -> None:
    """40 equal probabilities of 10 questions, 8 of them right: the interval is that of 8 in 10."""
    is_right = np.repeat(np.arange(10) < 8, 4)
    [one] = bins(np.full(40, 0.7), is_right, np.repeat(np.arange(10), 4))
    assert (one.mean, one.share, one.count) == (pytest.approx(0.7), pytest.approx(0.8), 40)

    def tail(p: float, ks: range) -> float:
        return sum(math.comb(10, k) * p**k * (1 - p) ** (10 - k) for k in ks)

    assert tail(one.low, range(8, 11)) == pytest.approx(0.025)
    assert tail(one.high, range(9)) == pytest.approx(0.025)
    alone = bins(np.full(4, 0.7), np.ones(4, bool), np.arange(4))[0]
    assert alone.high == 1
