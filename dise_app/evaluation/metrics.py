"""How well scores tell right answers from wrong ones. Uncertainty is -score, wrong is the positive
class, and ties count half.

Arrays: scores float64 [Q, A] and is_right bool [Q, A], for Q questions with A answers each. A score
of -inf is the least sure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]
Rights = npt.NDArray[np.bool_]

NUM_BINS = 10
"""Bins of the expected calibration errors."""

NUM_FOLDS = 5
"""Folds of questions for cross-validation."""

GRID = 1000
"""Cells of [0, 1] for the smooth calibration error."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate with its 95 % interval and its number of questions; NaN if it is undefined."""

    value: float
    low: float
    high: float
    num_questions: int


def auroc(scores: Scores, is_right: Rights) -> float:
    """Return the probability that a right answer scores above a wrong one; NaN unless both exist.

    Computed from the rank sum in O(n log n). Arrays of any shape.
    """
    flat, right = scores.ravel(), is_right.ravel()
    num_right = int(right.sum())
    num_wrong = right.size - num_right
    if num_right == 0 or num_wrong == 0:
        return float("nan")
    _, inverse, counts = np.unique(flat, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[right].sum() - num_right * (num_right + 1) / 2) / (num_right * num_wrong))


def auroc_per_question(scores: Scores, is_right: Rights) -> float:
    """Return the mean AUROC within questions that have both kinds of answers; NaN if none has."""
    values = [auroc(scores[row], is_right[row]) for row in np.flatnonzero(has_both(is_right))]
    return float(np.mean(values)) if values else float("nan")


def has_both(is_right: Rights) -> Rights:
    """Return which questions have both right and wrong answers, bool [Q]."""
    num_right = is_right.sum(axis=1)
    both: Rights = (num_right > 0) & (num_right < is_right.shape[1])
    return both


def is_of_both_kinds(is_right: Rights) -> bool:
    """Return whether there are both right and wrong answers."""
    return bool(is_right.any() and not is_right.all())


def best_of(scores: Scores, is_right: Rights) -> float:
    """Return the share of questions whose best-scored answer, the first of equals, is right."""
    return float(is_right[np.arange(len(scores)), scores.argmax(axis=1)].mean())


def risk_coverage(scores: Scores, is_right: Rights) -> Scores:
    """Return the share of wrong answers among the k surest, for k = 1..n, float64 [n]; answers with
    equal scores share their errors evenly.
    """
    flat, wrong = scores.ravel(), ~is_right.ravel()
    distinct, inverse = np.unique(-flat, return_inverse=True)
    errors = np.bincount(inverse, wrong, len(distinct))
    sizes = np.bincount(inverse, minlength=len(distinct))
    expected = np.repeat(errors / sizes, sizes)
    result: Scores = np.cumsum(expected) / np.arange(1, len(expected) + 1)
    return result


def roc(scores: Scores, is_right: Rights) -> tuple[Scores, Scores]:
    """Return the corners of the ROC curve: which share of the right answers is rejected, and which
    share of the wrong ones is caught, if the least sure are rejected; answers with equal scores
    together. Both start with 0 and end with 1; NaN unless there are right and wrong answers.
    """
    _, group = np.unique(scores.ravel(), return_inverse=True)
    rejected, caught = (
        np.concatenate([[0], np.cumsum(np.bincount(group, kind.ravel()))])
        for kind in (is_right, ~is_right)
    )
    if rejected[-1] == 0 or caught[-1] == 0:
        return np.full_like(rejected, np.nan), np.full_like(caught, np.nan)
    return rejected / rejected[-1], caught / caught[-1]


def aurc(scores: Scores, is_right: Rights) -> float:
    """Return the area under the risk-coverage curve: the mean risk over all coverages. Lower is
    better.
    """
    return float(risk_coverage(scores, is_right).mean())


def eaurc(scores: Scores, is_right: Rights) -> float:
    """Return the AURC in excess of an oracle's, which keeps all right answers first."""
    return aurc(scores, is_right) - aurc(is_right.astype(np.float64), is_right)


def augrc(scores: Scores, is_right: Rights) -> float:
    """Return the area under the generalized risk-coverage curve (Traub et al., 2024): the mean over
    all coverages of the share of all answers that are kept and wrong. Lower is better.
    """
    curve = risk_coverage(scores, is_right)
    return float(np.mean(curve * np.arange(1, len(curve) + 1) / len(curve)))


def prr(scores: Scores, is_right: Rights, max_rejection: float = 1.0) -> float:
    """Return the prediction rejection ratio: 1 for an oracle, 0 for chance.

    (area of chance - area of score) / (area of chance - area of oracle), each the mean risk where
    fewer than int(max_rejection n) answers are rejected, as lm-polygraph counts. NaN if nothing
    is rejected, or unless there are both right and wrong answers.
    """
    risk = float((~is_right).mean())
    num_rejections = int(max_rejection * is_right.size)
    if risk in (0.0, 1.0) or num_rejections == 0:
        return float("nan")
    area, oracle = (
        float(risk_coverage(each, is_right)[-num_rejections:].mean())
        for each in (scores, is_right.astype(np.float64))
    )
    return (risk - area) / (risk - oracle)


def prr_half(scores: Scores, is_right: Rights) -> float:
    """Return the prediction rejection ratio over rejections of up to half of the answers."""
    return prr(scores, is_right, 0.5)


def ece(probabilities: Scores, is_right: Rights, num_bins: int = NUM_BINS) -> float:
    """Return the expected calibration error over equal-width bins of [0, 1], 1 included."""
    flat, right = probabilities.ravel(), is_right.ravel()
    bins = np.minimum((flat * num_bins).astype(np.int64), num_bins - 1)
    gaps = np.bincount(bins, flat, num_bins) - np.bincount(bins, right, num_bins)
    return float(np.abs(gaps).sum() / flat.size)


def adaptive_ece(probabilities: Scores, is_right: Rights, num_bins: int = NUM_BINS) -> float:
    """Return the expected calibration error over bins of equal mass. Equal probabilities share the
    bin of the first of them, so that bins may differ in size.
    """
    flat, right = probabilities.ravel(), is_right.ravel()
    bins = equal_mass_bins(flat, num_bins)
    gaps = np.bincount(bins, flat, num_bins) - np.bincount(bins, right, num_bins)
    return float(np.abs(gaps).sum() / flat.size)


def equal_mass_bins(values: Scores, num_bins: int) -> npt.NDArray[np.int64]:
    """Return each value's bin, int64 [n]: how many values are smaller, in units of n / num_bins."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    bins: npt.NDArray[np.int64] = (np.cumsum(counts) - counts) * num_bins // len(values)
    return bins[inverse]


def smooth_ece(probabilities: Scores, is_right: Rights) -> float:
    """Return the smooth calibration error (Błasiok and Nakkiran, 2023), which needs no bins: the
    integral of the absolute residuals smoothed by a Gaussian that is reflected at 0 and 1, whose
    width s solves smECE(s) = s. Probabilities are rounded to 1 / GRID.
    """
    from scipy.ndimage import gaussian_filter1d
    from scipy.optimize import brentq

    flat, right = probabilities.ravel(), is_right.ravel()
    cells = np.minimum((flat * GRID).astype(np.int64), GRID - 1)
    residuals = np.bincount(cells, right - flat, GRID) / flat.size

    def smoothed(width: float) -> float:
        curve = gaussian_filter1d(residuals, width * GRID, mode="reflect", truncate=6)
        return float(np.abs(curve).sum())

    least = 1 / GRID**2
    if smoothed(least) <= least:
        return smoothed(least)
    return min(1.0, float(brentq(lambda width: smoothed(width) - width, least, 1.1, xtol=least)))


def brier_skill(probabilities: Scores, is_right: Rights) -> float:
    """Return 1 - Brier score / that of the base rate: 1 for an oracle, 0 for the base rate itself.
    NaN unless there are both right and wrong answers.
    """
    rate = float(is_right.mean())
    if rate in (0.0, 1.0):
        return float("nan")
    return 1 - brier(probabilities, is_right) / (rate * (1 - rate))


def brier(probabilities: Scores, is_right: Rights) -> float:
    """Return the mean squared difference between probability and outcome."""
    return float(np.mean((probabilities - is_right) ** 2))


def calibrated(scores: Scores, is_right: Rights) -> Scores:
    """Return each answer's probability of being right, float64 [Q, A], by isotonic regression on
    other questions.

    Questions are split into folds; each fold is calibrated on the others, so no answer's outcome
    affects its own probability. Raises ValueError for fewer than two questions.
    """
    from sklearn.isotonic import IsotonicRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    fold = np.repeat(folds(len(scores)), scores.shape[1])
    finite = np.where(np.isfinite(scores), scores, scores[np.isfinite(scores)].min() - 1)
    model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    outcomes = is_right.ravel().astype(np.float64)
    found: Scores = cross_val_predict(model, finite.ravel(), outcomes, cv=PredefinedSplit(fold))
    return found.reshape(scores.shape)


def folds(num_questions: int) -> npt.NDArray[np.int64]:
    """Return each question's fold, int64 [Q], below NUM_FOLDS, drawn with the seed 0."""
    drawn = np.random.default_rng(0).permutation(num_questions)
    return drawn % min(NUM_FOLDS, num_questions)
