"""Figures of resamples against scikit-learn and loops over the resampled answers, and the paired
bootstrap against scipy's and against what is simulated.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap
from sklearn.metrics import roc_auc_score, roc_curve

from dise_app.evaluation import metrics, resampling
from dise_app.evaluation.metrics import Rights, Scores


def table(seed: int, questions: int = 12, answers: int = 4) -> tuple[Scores, Rights]:
    """Scores with ties, one of them -inf."""
    random = np.random.default_rng(seed)
    is_right = random.random((questions, answers)) < random.random((questions, 1))
    scores = np.round(random.normal(size=is_right.shape) + is_right, 1)
    scores[0, 0] = -np.inf
    return scores, is_right


def ranked(scores: Scores) -> Scores:
    """Finite scores in the same order, which scikit-learn takes."""
    return np.unique(scores, return_inverse=True)[1].reshape(scores.shape).astype(float)


def mean_risk(scores: list[float], wrong: list[bool]) -> float:
    """The mean over k of the expected share of wrong answers among the k surest, where equals are
    kept in any order.
    """
    risks = []
    for k in range(1, len(scores) + 1):
        last = sorted(scores, reverse=True)[k - 1]
        sure = [w for s, w in zip(scores, wrong, strict=True) if s > last]
        tied = [w for s, w in zip(scores, wrong, strict=True) if s == last]
        risks.append((sum(sure) + (k - len(sure)) * sum(tied) / len(tied)) / k)
    return float(np.mean(risks))


@pytest.mark.parametrize("seed", range(3))
def test_figures_of_resamples_are_those_of_the_resampled_answers(seed: int) -> None:
    scores, is_right = table(seed)
    counts = resampling.counts_of(len(scores), 8, seed)
    assert (counts.sum(axis=1) == len(scores)).all()
    found = {
        name: figure(scores, is_right, counts) for name, (_, figure) in resampling.FIGURES.items()
    }
    for place, drawn in enumerate(counts):
        rows = np.repeat(np.arange(len(scores)), drawn)
        its, rights = ranked(scores)[rows], is_right[rows]
        expected = roc_auc_score(rights.ravel(), its.ravel())
        assert found["auroc_pooled"][place] == pytest.approx(expected)
        within = [
            roc_auc_score(r, s) for s, r in zip(its, rights, strict=True) if 0 < r.sum() < len(r)
        ]
        assert found["auroc_per_question"][place] == pytest.approx(np.mean(within))
        wrong = (~rights).ravel().tolist()
        area = mean_risk(its.ravel().tolist(), wrong)
        best = mean_risk([float(not w) for w in wrong], wrong)
        assert found["aurc"][place] == pytest.approx(area)
        risk = np.mean(wrong)
        assert found["prr"][place] == pytest.approx((risk - area) / (risk - best))


def test_the_interval_of_a_mean_is_that_of_the_resampled_values() -> None:
    values = np.random.default_rng(0).normal(size=12)
    means = [np.repeat(values, drawn).mean() for drawn in resampling.counts_of(len(values))]
    found = resampling.mean(values)
    assert [found.low, found.high] == pytest.approx(np.quantile(means, [0.025, 0.975]).tolist())


def test_parts_of_bounded_size_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, is_right = table(0)
    whole = resampling.values_of(resampling.prrs, scores, is_right)
    monkeypatch.setattr(resampling, "CELLS", 5000)
    assert resampling.values_of(resampling.prrs, scores, is_right) == pytest.approx(whole)


@pytest.mark.parametrize("name", ["auroc_pooled", "prr"])
def test_the_interval_of_a_difference_is_that_of_scipys_paired_bootstrap(name: str) -> None:
    """Both draw at random: 1,000 and 500 resamples place a quantile of 2.5 % within about 0.02."""
    scores, is_right = table(1, questions=60)
    others = scores + np.random.default_rng(2).normal(scale=0.8, size=scores.shape)
    others[0, 0] = -np.inf
    figure = {"auroc_pooled": metrics.auroc, "prr": metrics.prr}[name]

    def difference(rows: np.ndarray) -> float:
        return figure(scores[rows], is_right[rows]) - figure(others[rows], is_right[rows])

    drawn = bootstrap(
        (np.arange(60),), difference, n_resamples=500, vectorized=False, method="percentile", rng=3
    )
    mine, theirs = (resampling.resampled(name, each, is_right) for each in (scores, others))
    found = mine.minus(theirs).estimate
    assert found.value == difference(np.arange(60))
    expected = drawn.confidence_interval
    assert [found.low, found.high] == pytest.approx([expected.low, expected.high], abs=0.02)
    apart = mine.estimate.high - mine.estimate.low + theirs.estimate.high - theirs.estimate.low
    assert found.high - found.low < 0.7 * apart, "pairing takes out what both have in common"
    same = mine.minus(mine).estimate
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_scorers_of_equal_worth_are_rarely_told_apart_and_unequal_ones_often() -> None:
    """20 data sets of 40 questions. If equal scorers are told apart in 5 %, more than 5 of the 20
    have them told apart with probability 3e-4.
    """
    random = np.random.default_rng(0)
    apart = {"equal": 0, "better": 0}
    for _ in range(20):
        is_right = random.random((40, 3)) < random.random((40, 1))
        truth = is_right + random.normal(size=is_right.shape)
        for kind, noise in (("equal", 1.0), ("better", 0.2)):
            first, other = (
                truth + random.normal(scale=scale, size=truth.shape) for scale in (noise, 1.0)
            )
            mine, theirs = (
                resampling.resampled("auroc_pooled", each, is_right) for each in (first, other)
            )
            found = mine.minus(theirs).estimate
            apart[kind] += found.low > 0 or found.high < 0
    assert apart["equal"] <= 5
    assert apart["better"] >= 6


def test_corners_of_the_roc_curve_are_scikit_learns() -> None:
    for seed in range(5):
        scores, is_right = table(seed)
        wrong = ~is_right.ravel()
        expected = roc_curve(wrong, -ranked(scores).ravel(), drop_intermediate=False)[:2]
        found = metrics.roc(scores, is_right)
        assert np.allclose(found[0], expected[0])
        assert np.allclose(found[1], expected[1])
    assert np.isnan(metrics.roc(scores, np.ones_like(is_right))[0]).all()


def test_a_band_is_as_wide_as_the_questions_allow() -> None:
    """A share of 40 questions of five equal answers varies like one of 40 values; a curve of
    constants has no width; undefined curves are left out.
    """
    is_right = np.repeat(np.arange(40)[:, None] % 2 == 0, 5, axis=1)
    zeros = np.zeros(is_right.shape)
    low, high = resampling.band(
        lambda _, rights: np.array([rights.mean(), 3]), zeros, is_right, 1000
    )
    assert high - low == pytest.approx([2 * 1.96 * np.sqrt(0.25 / 40), 0], rel=0.15)
    scores, two = np.array([[1.0], [0.0]]), np.array([[True], [False]])
    low, high = resampling.band(lambda s, r: np.interp([0.5, 1], *metrics.roc(s, r)), scores, two)
    assert low.tolist() == high.tolist() == [1, 1]
