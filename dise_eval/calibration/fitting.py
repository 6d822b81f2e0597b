"""Fits the map from scores to probabilities of being right, and rates it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dise_core.errors import InputError
from dise_core.scoring.calibration import Figures, Isotonic, Platt
from dise_eval.statistics import metrics
from dise_eval.statistics.metrics import Rights, Scores
from dise_eval.statistics.resampling import rows_of

NUM_FOLDS = 5

LEAST_LABELS, LEAST_OF_FIELD = 50, 200

ENOUGH_FOR_ISOTONIC = 1000
"""From this many labels on, an isotonic map is the default; below, Platt's."""

Method = Literal["isotonic", "platt"]
Map = Isotonic | Platt
Fitted = Callable[[Scores], Scores]


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Scores float64 [n] or [n, K]; is_right bool [n]; questions int64 [n] from 0."""

    scores: Scores
    is_right: Rights
    questions: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def num_questions(self) -> int:
        return len(np.unique(self.questions))

    def of(self, rows: Rights | npt.NDArray[np.int64]) -> Labels:
        return Labels(self.scores[rows], self.is_right[rows], self.questions[rows])

    def one_each(self) -> Labels:
        """Return the first answer to each question. Answers to one question depend on
        each other: a promise needs labels that do not.
        """
        return self.of(np.sort(np.unique(self.questions, return_index=True)[1]))

    def split(self, share: float) -> tuple[Labels, Labels]:
        names = np.random.default_rng(0).permutation(np.unique(self.questions))
        is_second = np.isin(self.questions, names[: round(share * len(names))])
        return self.of(~is_second), self.of(is_second)

    def folds(self) -> Iterator[Rights]:
        """Yield each fold's answers, bool [n]. Questions are dealt with the seed 0."""
        names, place = np.unique(self.questions, return_inverse=True)
        dealt = np.random.default_rng(0).permutation(len(names)) % min(NUM_FOLDS, len(names))
        yield from (dealt[place] == fold for fold in np.unique(dealt))

    def resamples(self) -> Iterator[npt.NDArray[np.int64]]:
        """Yield all rows, then those of each resample of questions, by question."""
        names = np.unique(self.questions)
        members = [np.flatnonzero(self.questions == question) for question in names]
        for draw in (np.arange(len(members)), *rows_of(len(members))):
            yield np.concatenate([members[place] for place in draw])

    def check(self, minimum: int = LEAST_LABELS) -> None:
        """Raise InputError for labels that no map can be fitted on."""
        if len(self) < minimum:
            raise InputError(
                f"{len(self)} labels are too few: a calibration needs at least {minimum}, "
                f"and {ENOUGH_FOR_ISOTONIC} are better"
            )
        if self.num_questions < NUM_FOLDS:
            raise InputError(
                f"the labels are of {self.num_questions} questions, and cross-validation needs at "
                f"least {NUM_FOLDS}"
            )
        if self.is_right.all() or not self.is_right.any():
            label = "right" if self.is_right.all() else "wrong"
            raise InputError(
                f"all {len(self)} labels are {label}: a calibration needs answers of both kinds"
            )


def isotonic(labels: Labels, lowest: float | None = None) -> Isotonic:
    """Return the isotonic regression. No probability is nearer to 0 or 1 than `lowest`,
    by default 1 / (n + 2), by the rule of succession: no number of labels shows that an
    answer cannot be wrong.
    """
    from sklearn.isotonic import IsotonicRegression

    lowest = 1 / (len(labels) + 2) if lowest is None else lowest
    model = IsotonicRegression(y_min=lowest, y_max=1 - lowest, out_of_bounds="clip")
    model.fit(labels.scores, labels.is_right.astype(np.float64))
    scores, probabilities = model.X_thresholds_.tolist(), model.y_thresholds_.tolist()
    return Isotonic(scores=tuple(scores), probabilities=tuple(probabilities))


def platt(labels: Labels) -> Platt:
    """Return the logistic regression on the scores, with Platt's smoothed labels.

    Raises InputError if right answers do not score higher than wrong ones.
    """
    from sklearn.linear_model import LogisticRegression

    centre, width = labels.scores.mean(), labels.scores.std() or 1.0
    scaled = ((labels.scores - centre) / width)[:, None]
    num_right = int(labels.is_right.sum())
    high, low = (num_right + 1) / (num_right + 2), 1 / (len(labels) - num_right + 2)
    targets = np.where(labels.is_right, high, low)
    outcomes = np.repeat([1, 0], len(labels))
    model = LogisticRegression(C=np.inf, max_iter=1000)
    weights = np.concatenate([targets, 1 - targets])
    model.fit(np.tile(scaled, (2, 1)), outcomes, sample_weight=weights)
    slope, intercept = float(model.coef_[0, 0]), float(model.intercept_[0])
    if slope <= 0:
        raise InputError(
            "right answers do not score higher than wrong ones, so that no score tells them apart: "
            "label more answers, or take another scorer"
        )
    return Platt(
        slope=slope / width,
        intercept=intercept - slope * centre / width,
        lowest_score=float(labels.scores.min()),
        highest_score=float(labels.scores.max()),
    )


FITS: Mapping[Method, Callable[[Labels], Map]] = {"isotonic": isotonic, "platt": platt}


def held_out(method: Method, labels: Labels) -> Scores:
    """Return each answer's probability by a map fitted on other questions, float64
    [n]. Raises InputError if without one fold of questions all answers are of one kind.
    """

    def fit(training: Labels) -> Fitted:
        if training.is_right.all() or not training.is_right.any():
            raise InputError("too few answers of one kind: without one fold of questions all agree")
        return FITS[method](training).of

    return by_folds(fit, labels)


def by_folds(fit: Callable[[Labels], Fitted], labels: Labels) -> Scores:
    """Return each answer's value by a fit on the other folds' questions, [n]."""
    results = np.empty(len(labels))
    for here in labels.folds():
        results[here] = fit(labels.of(~here))(labels.scores[here])
    return results


def calibrate_scores(scores: Scores, is_right: Rights) -> Scores:
    """Return each answer's probability of being right, float64 [Q, A], by isotonic
    regression on other questions. It takes two questions. Answers without a score count
    as below all others.
    """
    is_known = np.isfinite(scores)
    finite = np.where(is_known, scores, scores[is_known].min() - 1 if is_known.any() else 0.0)
    questions = np.repeat(np.arange(len(scores)), scores.shape[1])
    labels = Labels(finite.ravel(), is_right.ravel(), questions)
    return by_folds(lambda training: isotonic(training, 0.0).of, labels).reshape(scores.shape)


def figures(probabilities: Scores, labels: Labels) -> Figures:
    """Return how well probabilities agree with labels that they were not fitted on."""
    is_right = labels.is_right
    return Figures(
        num_bins=metrics.NUM_BINS,
        ece=metrics.ece(probabilities, is_right),
        adaptive_ece=metrics.adaptive_ece(probabilities, is_right),
        smooth_ece=metrics.smooth_ece(probabilities, is_right),
        brier=metrics.brier(probabilities, is_right),
        brier_skill=metrics.brier_skill(probabilities, is_right),
        auroc=float(metrics.auroc(labels.scores, is_right)),
    )
