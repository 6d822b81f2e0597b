"""The metrics against naive loops, on random data with ties, and what must hold whatever the data;
test_resampling.py has those with intervals.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_eval.calibration.fitting import Labels, calibrate_scores
from dise_eval.reports.reliability import bins
from dise_eval.statistics import metrics, resampling
from dise_eval.statistics.metrics import Rights, Scores
from dise_eval.statistics.resampling import auroc_per_question

auroc = resampling.pool(metrics.auroc)


def table(seed: int, questions: int = 12, answers: int = 5) -> tuple[Scores, Rights]:
    random = np.random.default_rng(seed)
    is_right = random.random((questions, answers)) < random.random((questions, 1))
    return np.round(random.normal(size=(questions, answers)) + is_right, 1), is_right


tables = st.integers(0, 10_000).map(table)


@given(tables)
def test_calibrated_scores_are_probabilities_and_never_use_an_answers_own_outcome(
    data: tuple[Scores, Rights],
) -> None:
    scores, is_right = data
    before = calibrate_scores(scores, is_right)
    assert ((before >= 0) & (before <= 1)).all()
    changed = is_right.copy()
    changed[0] = ~changed[0]
    assert np.array_equal(calibrate_scores(scores, changed)[0], before[0])


def test_what_is_undefined_is_nan() -> None:
    always = np.ones((3, 2), bool)
    assert np.isnan(auroc(np.zeros((3, 2)), always))
    assert np.isnan(auroc_per_question(np.zeros((3, 2)), always))
    for name in ("auroc_pooled", "auroc_per_question", "prr"):
        estimate = resampling.resample(name, np.zeros((3, 2)), always).estimate
        assert np.isnan([estimate.value, estimate.low, estimate.high]).all()


def test_a_score_of_minus_infinity_ranks_last() -> None:
    scores = np.array([[-np.inf, -1.0]])
    assert auroc(scores, np.array([[False, True]])) == 1
    probabilities = calibrate_scores(np.repeat(scores, 6, 0), np.repeat([[False, True]], 6, 0))
    assert np.isfinite(probabilities).all()


def test_a_scorer_that_scores_no_answer_tells_none_apart() -> None:
    scores, is_right = table(0)
    probabilities = calibrate_scores(np.full_like(scores, -np.inf), is_right)
    assert np.array_equal(probabilities, np.repeat(probabilities[:, :1], scores.shape[1], 1))
    assert probabilities.mean() == pytest.approx(is_right.mean(), abs=0.02)


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
    assert metrics.aurc(scores, is_right) == pytest.approx(area)
    assert metrics.eaurc(scores, is_right) == pytest.approx(area - oracle)
    chance = 1 - num_right / n
    expected = (chance - area) / (chance - oracle)
    assert metrics.prr(scores, is_right) == pytest.approx(expected)
    assert metrics.augrc(scores, is_right) == pytest.approx(sum(kept) / n**2)
    half = range(n - n // 2 + 1, n + 1)
    mean = np.mean([kept[k - 1] / k for k in half])
    best = np.mean([max(0, k - num_right) / k for k in half])
    expected = (chance - mean) / (chance - best)
    assert metrics.prr(scores, is_right, 0.5) == pytest.approx(expected)
    assert metrics.prr_half(scores, is_right) == metrics.prr(scores, is_right, 0.5)


@pytest.mark.parametrize("seed", range(4))
def test_ece_agrees_with_loops_over_bins_of_equal_width_and_of_equal_mass(seed: int) -> None:
    probabilities, is_right = probable(seed)
    everyone = probabilities.tolist()
    pairs = list(zip(everyone, is_right.tolist(), strict=True))
    for found, bin_of in (
        (metrics.ece(probabilities, is_right), lambda p: min(int(p * 10), 9)),
        (
            metrics.adaptive_ece(probabilities, is_right),
            lambda p: sum(other < p for other in everyone) * 10 // len(everyone),
        ),
    ):
        gaps = []
        for number in range(10):
            within = [(p, right) for p, right in pairs if bin_of(p) == number]
            gaps.append(abs(sum(p for p, _ in within) - sum(right for _, right in within)))
        assert found == pytest.approx(sum(gaps) / len(pairs))


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


def test_brier_and_its_skill() -> None:
    probabilities, is_right = probable(0)
    rate = is_right.mean()
    worst = np.mean([(rate - right) ** 2 for right in is_right.tolist()])
    mine = np.mean([(p - r) ** 2 for p, r in zip(probabilities, is_right.tolist(), strict=True)])
    assert metrics.brier(probabilities, is_right) == pytest.approx(mine)
    assert metrics.brier_skill(probabilities, is_right) == pytest.approx(1 - mine / worst)
    assert metrics.brier_skill(np.full(200, rate), is_right) == pytest.approx(0)
    assert math.isnan(metrics.brier_skill(np.ones(3), np.ones(3, bool)))


def test_bins_of_a_diagram_count_the_answers_of_a_question_as_one() -> None:
    """40 equal probabilities of 10 questions, 8 of them right: the interval is that of 8 in 10."""
    is_right = np.repeat(np.arange(10) < 8, 4)
    [one] = bins(np.full(40, 0.7), Labels(np.zeros(40), is_right, np.repeat(np.arange(10), 4)))
    assert (one.mean, one.share) == (pytest.approx(0.7), pytest.approx(0.8))
    assert (one.low, one.high) == pytest.approx(resampling.binomial_interval(8, 2))
