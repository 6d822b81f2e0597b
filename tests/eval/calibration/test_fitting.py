"""Maps against naive implementations, and probabilities that hold on other questions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from dise_core import InputError
from dise_core.scoring.calibration import Platt
from dise_eval.calibration import fitting, making
from dise_eval.calibration.fitting import Labels


def drawn(seed: int, num_questions: int, answers: int = 1, slope: float = 1.5) -> Labels:
    """Scores whose probability of being right is a logistic function of them."""
    random = np.random.default_rng(seed)
    scores = np.round(random.normal(size=num_questions * answers), 2)
    is_right = random.random(len(scores)) < 1 / (1 + np.exp(-slope * scores - 0.5))
    return Labels(scores, is_right, np.repeat(np.arange(num_questions), answers))


@pytest.mark.parametrize("seed", range(3))
def test_isotonic_is_scikit_learns_by_the_rule_of_succession(seed: int) -> None:
    labels, least = drawn(seed, 300), 1 / 302
    map_ = fitting.isotonic(labels)
    plain = IsotonicRegression(out_of_bounds="clip").fit(labels.scores, labels.is_right)
    expected = plain.predict(labels.scores).clip(least, 1 - least)
    assert map_.of(labels.scores) == pytest.approx(expected)
    assert least <= map_.probabilities[0] < map_.probabilities[-1] <= 1 - least


def test_platt_is_the_maximum_of_its_likelihood_and_finds_the_truth() -> None:
    labels = drawn(1, 4000)
    map_ = fitting.platt(labels)
    assert isinstance(map_, Platt)
    assert (map_.slope, map_.intercept) == pytest.approx((1.5, 0.5), abs=0.12)
    num_right, n = int(labels.is_right.sum()), len(labels)
    target = np.where(labels.is_right, (num_right + 1) / (num_right + 2), 1 / (n - num_right + 2))
    fit = 1 / (1 + np.exp(-map_.slope * labels.scores - map_.intercept))
    for direction in (labels.scores, np.ones(n)):
        assert abs(np.sum((target - fit) * direction)) < 1e-3 * n


def test_scores_that_tell_nothing_or_the_opposite_have_no_platt_map() -> None:
    with pytest.raises(InputError, match="do not score higher"):
        fitting.platt(drawn(0, 500, slope=-1.5))


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (drawn(0, 49), "49 labels are too few"),
        (Labels(np.zeros(60), np.ones(60, bool), np.arange(60)), "all 60 labels are right"),
        (Labels(np.zeros(60), np.zeros(60, bool), np.arange(60)), "all 60 labels are wrong"),
        (drawn(0, 4, 20), "of 4 questions"),
    ],
)
def test_labels_that_say_too_little_are_refused(labels: Labels, told: str) -> None:
    with pytest.raises(InputError, match=told):
        labels.check()


def test_a_fold_without_answers_of_both_kinds_is_refused() -> None:
    one_wrong = Labels(np.arange(60.0), np.arange(60) > 0, np.arange(60))
    with pytest.raises(InputError, match="too few answers of one kind"):
        making.fit_answers(one_wrong, "isotonic", making.Promises())


def test_a_thousand_labels_are_enough_on_new_questions() -> None:
    """ECE of at most 0.03, of which the drawing of 20,000 new answers is 0.002."""
    new = drawn(99, 20_000)
    errors = []
    for seed in range(5):
        labels = drawn(seed, 1000)
        map_ = fitting.isotonic(labels)
        errors.append(fitting.figures(map_.of(new.scores), new).ece)
    assert np.mean(errors) <= 0.03


def test_first_answers_and_splits_are_by_question() -> None:
    questions = np.array([3, 1, 3, 2, 1, 3])
    labels = Labels(np.arange(6.0), np.array([True, False] * 3), questions)
    assert labels.one_each().scores.tolist() == [0, 1, 3]
    one, other = drawn(0, 50, 4).split(0.3)
    assert (one.num_questions, other.num_questions) == (35, 15)
    assert not set(one.questions.tolist()) & set(other.questions.tolist())
    assert (len(one), len(other)) == (140, 60)
