"""Thresholds keep what they promise: on a population whose risks are known, over 200 draws."""

from __future__ import annotations

import math
import re
from contextlib import suppress

import numpy as np
import pytest

from dise_core import InputError
from dise_core.scoring.calibration import Threshold
from dise_eval.calibration import guarantee
from dise_eval.calibration.fitting import Labels
from dise_eval.calibration.guarantee import Promise, RankedLabels

PROMISE = Promise(0.1, 0.95)


def population(seed: int, size: int, ties: bool) -> tuple[Labels, np.ndarray]:
    """Labels, and each answer's own probability of being wrong."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=size)
    scores = np.round(scores * 4) / 4 if ties else scores
    risk = 1 / (1 + np.exp(3 * scores + 1.5))
    return Labels(scores, random.random(size) >= risk, np.arange(size)), risk


def threshold_if_any(rule: guarantee.Rule, labels: Labels) -> Threshold | None:
    with suppress(InputError):
        return guarantee.threshold_of(rule, labels, PROMISE)
    return None


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("rule", ["sgr", "ltt"])
def test_the_promise_is_kept_in_95_of_100_draws(rule: guarantee.Rule, ties: bool) -> None:
    """The risk above a threshold is that of 50,000 answers, exact in their labels."""
    everyone, risk = population(10_000, 50_000, ties)
    num_broken, coverages = 0, []
    for seed in range(200):
        labels, _ = population(seed, 400, ties)
        found = threshold_if_any(rule, labels)
        least = np.inf if found is None else found.score
        kept = everyone.scores >= least
        num_broken += bool(kept.any()) and float(risk[kept].mean()) > PROMISE.max_risk
        coverages.append(float(kept.mean()))
    assert num_broken <= 10
    assert np.mean(coverages) > 0.15, "a threshold that answers nothing promises nothing"


def binomial_tail(n: int, k: int, p: float) -> float:
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))


@pytest.mark.parametrize(("n", "k"), [(30, 0), (80, 3), (200, 17), (5, 4)])
def test_the_bound_solves_its_equation(n: int, k: int) -> None:
    for delta in (0.05, 0.004):
        assert binomial_tail(n, k, guarantee.risk_bound(n, k, delta)) == pytest.approx(delta)
    assert guarantee.risk_bound(n, n, 0.05) == guarantee.risk_bound(0, 0, 0.05) == 1


@pytest.mark.parametrize(("n", "k", "alpha"), [(50, 0, 0.1), (150, 7, 0.1), (300, 29, 0.1)])
def test_the_p_value_is_hoeffdings_and_bentkus(n: int, k: int, alpha: float) -> None:
    share = k / n
    h = (1 - share) * math.log((1 - share) / (1 - alpha))
    h += share * math.log(share / alpha) if share else 0
    expected = min(math.exp(-n * h), math.e * binomial_tail(n, k, alpha), 1)
    assert guarantee.p_value(n, k, alpha) == pytest.approx(expected)
    assert guarantee.p_value(n, n, alpha) == guarantee.p_value(0, 0, alpha) == 1


def naive_candidates(labels: Labels) -> list[tuple[float, int, int]]:
    """For each rank from 1: the score of that rank, how many score above it, how many wrong."""
    pairs = sorted(zip(-labels.scores, ~labels.is_right, strict=True))
    found = []
    for rank in range(1, len(pairs)):
        limit = pairs[rank][0]
        above = [wrong for score, wrong in pairs if score < limit]
        found.append((-limit, len(above), sum(above)))
    return found


@pytest.mark.parametrize("ties", [False, True])
def test_candidates_keep_what_scores_above_a_rank(ties: bool) -> None:
    labels, _ = population(5, 80, ties)
    ranks = RankedLabels.of(labels)
    naive = naive_candidates(labels)
    assert ranks.num_kept.tolist() == [num_kept for _, num_kept, _ in naive]
    assert ranks.num_wrong.tolist() == [num_wrong for *_, num_wrong in naive]
    for threshold, (limit, num_kept, _) in zip(ranks.thresholds, naive, strict=True):
        assert int((labels.scores >= threshold).sum()) == num_kept
        assert limit < threshold <= limit + 1e-9


def test_sgr_is_the_binary_search_of_its_paper() -> None:
    """The algorithm of Geifman and El-Yaniv, written down on the naive candidates."""
    labels, _ = population(7, 300, ties=False)
    each = naive_candidates(labels)
    steps = math.ceil(math.log2(300))
    low, high, best = 1, 299, 0
    for _ in range(steps):
        middle = math.ceil((low + high) / 2)
        _, num_kept, num_wrong = each[middle - 1]
        passes = binomial_tail(num_kept, num_wrong, 0.1) <= 0.05 / steps
        if passes:
            best, low = max(best, num_kept), middle + 1
        else:
            high = middle - 1
        low, high = min(low, 299), max(high, 1)
    found = guarantee.threshold_of("sgr", labels, PROMISE)
    assert best > 0
    assert found.coverage == pytest.approx(best / 300)
    assert found.bound <= 0.1


def test_ltt_goes_on_until_a_test_fails() -> None:
    labels, _ = population(8, 500, ties=False)
    each = naive_candidates(labels)
    start = next(
        n for n in range(1, 500) if guarantee.p_value(n, math.floor(n * 0.05), 0.1) <= 0.05
    )
    best = 0
    for rank in range(start, 500, 5):
        _, num_kept, num_wrong = each[rank - 1]
        if guarantee.p_value(num_kept, num_wrong, 0.1) > 0.05:
            break
        best = num_kept
    found = guarantee.threshold_of("ltt", labels, PROMISE)
    assert found.coverage == pytest.approx(best / 500)


@pytest.mark.parametrize("seed", range(20))
def test_ltt_chooses_what_mapies_fixed_sequence_testing_chooses(seed: int) -> None:
    """MAPIE's p-values of the naive candidates, in the same order, through its own procedure."""
    methods = pytest.importorskip("mapie.risk_control.methods", reason="needs dise[oracle]")
    control = pytest.importorskip("mapie.risk_control.fwer_control")
    labels, _ = population(seed, 400, ties=seed % 2 == 1)
    start = next(n for n in range(1, 400) if guarantee.p_value(n, n // 20, 0.1) <= 0.05)
    kept, wrong = np.array([each[1:] for each in naive_candidates(labels)])[start - 1 :: 4].T
    shares = wrong / np.maximum(kept, 1) * (1 - 1e-12)  # they round n k / n up
    p_values = methods.compute_hoeffding_bentkus_p_value(shares, kept, 0.1).ravel()
    p_values[kept == 0] = 1
    passing = control.control_fwer(p_values, 0.05, "fixed_sequence")
    found = threshold_if_any("ltt", labels)
    coverage = 0 if found is None else found.coverage
    assert coverage == pytest.approx(kept[passing[-1]] / 400 if len(passing) else 0)


@pytest.mark.parametrize("rule", ["sgr", "ltt"])
def test_a_risk_that_cannot_be_kept_is_refused_with_how_far_it_is(rule: guarantee.Rule) -> None:
    random = np.random.default_rng(0)
    labels = Labels(random.normal(size=300), random.random(300) < 0.5, np.arange(300))
    with pytest.raises(InputError, match="the smallest bound on 300 questions is") as error:
        guarantee.threshold_of(rule, labels, PROMISE)
    told = re.search(r"is (\S+)%, (\S+) points above", str(error.value))
    assert told is not None
    assert float(told[1]) - float(told[2]) == pytest.approx(10, abs=0.11)


def test_a_threshold_counts_one_answer_to_a_question() -> None:
    labels, _ = population(3, 400, ties=False)
    five = Labels(*(np.repeat(a, 5) for a in (labels.scores, labels.is_right, labels.questions)))
    alone = guarantee.threshold_of("sgr", labels, PROMISE)
    assert guarantee.threshold_of("sgr", five, PROMISE) == alone
