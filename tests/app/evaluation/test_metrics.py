"""The metrics against scikit-learn and naive loops, on random data with ties, and what must hold
whatever the data.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, roc_auc_score

from dise_app.evaluation import metrics, resampling
from dise_app.evaluation.metrics import Rights, Scores


def table(seed: int, questions: int = 12, answers: int = 5) -> tuple[Scores, Rights]:
    random = np.random.default_rng(seed)
    is_right = random.random((questions, answers)) < random.random((questions, 1))
    return np.round(random.normal(size=(questions, answers)) + is_right, 1), is_right


tables = st.integers(0, 10_000).map(table)


@pytest.mark.parametrize("seed", range(10))
def test_auroc_agrees_with_scikit_learn(seed: int) -> None:
    scores, is_right = table(seed)
    expected = roc_auc_score(~is_right.ravel(), -scores.ravel())
    assert metrics.auroc(scores, is_right) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_auroc_per_question_agrees_with_a_loop(seed: int) -> None:
    scores, is_right = table(seed)
    each = []
    for its_scores, its_rights in zip(scores, is_right, strict=True):
        pairs = [
            (a > b) + (a == b) / 2 for a in its_scores[its_rights] for b in its_scores[~its_rights]
        ]
        if pairs:
            each.append(np.mean(pairs))
    assert metrics.auroc_per_question(scores, is_right) == pytest.approx(np.mean(each))


@pytest.mark.parametrize("seed", range(5))
def test_aurc_agrees_with_a_mean_over_all_orders_of_equals(seed: int) -> None:
    """Ties: the mean over many random orders, within 4 standard errors."""
    scores, is_right = table(seed)
    random = np.random.default_rng(seed)
    areas = []
    for _ in range(3000):
        order = np.lexsort((random.random(scores.size), -scores.ravel()))
        wrong = ~is_right.ravel()[order]
        areas.append(np.mean(np.cumsum(wrong) / np.arange(1, wrong.size + 1)))
    assert (
        abs(metrics.aurc(scores, is_right) - np.mean(areas))
        < 4 * np.std(areas) / np.sqrt(3000) + 1e-12
    )


def test_prr_is_1_for_an_oracle_and_0_for_a_constant() -> None:
    _, is_right = table(0)
    assert metrics.prr(is_right.astype(float), is_right) == pytest.approx(1)
    assert metrics.prr(np.zeros(is_right.shape), is_right) == pytest.approx(0)
    assert np.isnan(metrics.prr(np.zeros((2, 2)), np.ones((2, 2), bool)))


@pytest.mark.parametrize("seed", range(5))
def test_ece_and_brier_agree_with_a_loop_and_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    probabilities, is_right = np.round(random.random((20, 5)), 2), random.random((20, 5)) < 0.5
    probabilities[0, 0] = 1.0
    expected = 0.0
    for low in range(10):
        chosen = [
            (p, r)
            for p, r in zip(probabilities.ravel(), is_right.ravel(), strict=True)
            if int(p * 10) == low or (low == 9 and p == 1)
        ]
        if chosen:
            gap = abs(np.mean([p for p, _ in chosen]) - np.mean([r for _, r in chosen]))
            expected += gap * len(chosen) / is_right.size
    assert metrics.ece(probabilities, is_right) == pytest.approx(expected)
    assert metrics.brier(probabilities, is_right) == pytest.approx(
        brier_score_loss(is_right.ravel(), probabilities.ravel())
    )


@given(tables)
def test_auroc_turns_over_with_the_sign_and_ignores_any_growing_change(
    data: tuple[Scores, Rights],
) -> None:
    scores, is_right = data
    value = metrics.auroc(scores, is_right)
    if np.isnan(value):
        assert is_right.all() or not is_right.any()
        return
    assert metrics.auroc(-scores, is_right) == pytest.approx(1 - value)
    assert metrics.auroc(np.exp(scores), is_right) == pytest.approx(value)


@given(tables)
def test_per_question_ignores_what_differs_between_questions(data: tuple[Scores, Rights]) -> None:
    scores, is_right = data
    shifted = scores + 100 * np.arange(len(scores))[:, None]
    first, second = (metrics.auroc_per_question(each, is_right) for each in (scores, shifted))
    assert first == pytest.approx(second, nan_ok=True)


@given(tables)
def test_the_best_choice_lies_between_the_worst_and_the_oracle(data: tuple[Scores, Rights]) -> None:
    scores, is_right = data
    assert (
        is_right.all(axis=1).mean()
        <= metrics.best_of(scores, is_right)
        <= is_right.any(axis=1).mean()
    )
    assert metrics.best_of(is_right.astype(float), is_right) == is_right.any(axis=1).mean()


@given(tables)
def test_calibrated_scores_are_probabilities_and_never_use_an_answers_own_outcome(
    data: tuple[Scores, Rights],
) -> None:
    scores, is_right = data
    before = metrics.calibrated(scores, is_right)
    assert ((before >= 0) & (before <= 1)).all()
    changed = is_right.copy()
    changed[0] = ~changed[0]
    assert np.array_equal(metrics.calibrated(scores, changed)[0], before[0])


def test_the_bootstrap_is_over_questions_and_keeps_their_answers_together() -> None:
    """40 questions of five equal answers: the interval is that of 40 values, not of 200."""
    is_right = np.repeat(np.arange(40)[:, None] % 2 == 0, 5, axis=1)
    estimate = resampling.mean(is_right.mean(axis=1))
    assert (estimate.value, estimate.num_questions) == (0.5, 40)
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * np.sqrt(0.25 / 40), rel=0.15)
    assert resampling.mean(is_right.mean(axis=1)) == estimate


def test_what_is_undefined_is_nan() -> None:
    always = np.ones((3, 2), bool)
    assert np.isnan(metrics.auroc(np.zeros((3, 2)), always))
    assert np.isnan(metrics.auroc_per_question(np.zeros((3, 2)), always))
    for name in ("auroc_pooled", "auroc_per_question", "prr"):
        estimate = resampling.resampled(name, np.zeros((3, 2)), always).estimate
        assert np.isnan([estimate.value, estimate.low, estimate.high]).all()


def test_a_score_of_minus_infinity_ranks_last() -> None:
    scores = np.array([[-np.inf, -1.0]])
    assert metrics.auroc(scores, np.array([[False, True]])) == 1
    assert np.isfinite(
        metrics.calibrated(np.repeat(scores, 6, 0), np.repeat([[False, True]], 6, 0))
    ).all()
