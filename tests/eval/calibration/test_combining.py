"""The weights of several scores are found again, and no figure knows a question's own labels."""

from __future__ import annotations

import numpy as np
import pytest

from dise_eval.calibration import combining, fitting
from dise_eval.calibration.fitting import Labels

TRUE = np.array([1.0, -0.75, 0.0])


def drawn(seed: int, num_questions: int, answers: int = 3) -> Labels:
    """Three scores, of which two tell what is right."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=(num_questions * answers, 3)) * [1.0, 2.0, 0.1]
    is_right = random.random(len(scores)) < 1 / (1 + np.exp(-scores @ TRUE - 0.5))
    return Labels(scores, is_right, np.repeat(np.arange(num_questions), answers))


def test_the_weights_and_the_intercept_are_found_again() -> None:
    """Of 12,000 answers, so each weight of a standardised score is known to about 0.025."""
    labels = drawn(0, 4000)
    found = combining.settings(labels, [{"scorer": name} for name in "abc"])
    weights = [part["weight"] for part in found["parts"]]
    assert weights * labels.scores.std(axis=0) == pytest.approx(TRUE * [1, 2, 0.1], abs=0.1)
    assert found["intercept"] == pytest.approx(0.5, abs=0.1)
    assert [part["scorer"] for part in found["parts"]] == ["a", "b", "c"]
    log_odds = labels.scores @ weights + found["intercept"]
    assert log_odds == pytest.approx(fitting.weigher(labels)(labels.scores))


def test_a_score_that_tells_nothing_carries_nothing() -> None:
    told = {part["score"]: part for part in combining.contributions(drawn(1, 200), "abc")}
    for name in "ab":
        assert told[name]["gain"]["low"] > 0.01
        assert told[name]["gain"]["value"] == pytest.approx(
            told[name]["auroc_with"] - told[name]["auroc_without"]
        )
    assert abs(told["c"]["gain"]["value"]) < 0.01
    assert told["c"]["weight"]["low"] < 0 < told["c"]["weight"]["high"]
    assert told["a"]["weight"]["low"] < 1.0 < told["a"]["weight"]["high"]
    assert told["a"]["auroc"] > 0.5 > told["b"]["auroc"]


def test_held_out_figures_never_use_a_questions_own_labels_for_its_weights() -> None:
    labels = drawn(2, 60)
    mine = labels.questions == 17
    flipped = Labels(labels.scores, labels.is_right ^ mine, labels.questions)
    for held_out in (
        lambda labels: fitting.by_folds(fitting.weigher, labels),
        lambda labels: fitting.held_out("platt", labels),
        lambda labels: fitting.held_out("isotonic", labels),
    ):
        before, after = held_out(labels), held_out(flipped)
        assert np.array_equal(before[mine], after[mine])
        assert not np.array_equal(before, after)
