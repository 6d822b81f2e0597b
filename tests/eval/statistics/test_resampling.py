"""Figures of resamples against scikit-learn and loops over the resampled answers, and the paired
bootstrap against scipy's and against what is simulated.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap
from sklearn.metrics import roc_auc_score

from dise_eval.statistics import metrics, resampling
from dise_eval.statistics.metrics import Rights, Scores


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


@pytest.mark.parametrize("seed", range(3))
def test_figures_of_resamples_are_those_of_the_resampled_answers(seed: int) -> None:
    scores, is_right = table(seed)
    drawn = resampling.rows_of(len(scores))[:8]
    found = {
        name: figure(scores[drawn], is_right[drawn]) for name, figure in resampling.FIGURES.items()
    }
    for place, rows in enumerate(drawn):
        its, rights = ranked(scores)[rows], is_right[rows]
        expected = roc_auc_score(rights.ravel(), its.ravel())
        assert found["auroc_pooled"][place] == pytest.approx(expected)
        within = [
            roc_auc_score(r, s) for s, r in zip(its, rights, strict=True) if 0 < r.sum() < len(r)
        ]
        assert found["auroc_per_question"][place] == pytest.approx(np.mean(within))
        flat = its.ravel(), rights.ravel()  # test_metrics.py has naive loops over the coverages
        for name, metric in (("aurc", metrics.aurc), ("prr", metrics.prr)):
            assert found[name][place] == pytest.approx(float(metric(*flat)))


def test_parts_of_bounded_size_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, is_right = table(0, questions=24)
    whole = resampling.resample("prr", scores, is_right)
    monkeypatch.setattr(resampling, "CELLS", 5000)
    assert np.array_equal(resampling.resample("prr", scores, is_right).values, whole.values)


@pytest.mark.parametrize("name", ["auroc_pooled", "prr"])
def test_the_interval_of_a_difference_is_that_of_scipys_paired_bootstrap(name: str) -> None:
    """With the same seed, so that both draw the same resamples."""
    scores, is_right = table(1, questions=60)
    others = scores + np.random.default_rng(2).normal(scale=0.8, size=scores.shape)
    others[0, 0] = -np.inf
    figure = resampling.FIGURES[name]

    def difference(rows: np.ndarray, axis: int) -> np.ndarray:
        return figure(scores[rows], is_right[rows]) - figure(others[rows], is_right[rows])

    drawn = bootstrap(
        (np.arange(60),),
        difference,
        n_resamples=1000,
        vectorized=True,
        paired=True,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    mine, theirs = (resampling.resample(name, each, is_right) for each in (scores, others))
    found = mine.minus(theirs).estimate
    expected = drawn.confidence_interval
    assert [found.low, found.high] == pytest.approx([expected.low, expected.high])
    apart = mine.estimate.high - mine.estimate.low + theirs.estimate.high - theirs.estimate.low
    assert found.high - found.low < 0.7 * apart, "pairing takes out what both have in common"
    same = mine.minus(mine).estimate
    assert (same.value, same.low, same.high) == (0, 0, 0)


@pytest.mark.parametrize(
    ("questions", "num_wrong", "is_told"), [(20, 5, True), (19, 5, False), (20, 4, False)]
)
def test_a_roc_auc_and_an_interval_take_20_questions_and_5_answers_of_each_kind(
    questions: int, num_wrong: int, is_told: bool
) -> None:
    scores = np.random.default_rng(0).normal(size=(questions, 2))
    is_right = np.arange(scores.size).reshape(scores.shape) >= num_wrong
    for name in resampling.FIGURES:
        found = resampling.resample(name, scores, is_right).estimate
        assert (found.low <= found.value <= found.high) is is_told
        assert np.isnan(found.value) == (not is_told and name.startswith("auroc"))
    mean = resampling.mean(is_right.mean(axis=1))
    assert mean.value == pytest.approx(is_right.mean())
    assert np.isnan(mean.low) == np.isnan(mean.high) == (questions < 20)
