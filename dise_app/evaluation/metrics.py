"""How well scores tell right answers from wrong ones. Uncertainty is -score, wrong is the positive
class, and ties count half.

Arrays: scores float64 [Q, A] and is_right bool [Q, A], for Q questions with A answers each. A score
of -inf is the least sure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]
Rights = npt.NDArray[np.bool_]


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


def aurc(scores: Scores, is_right: Rights) -> float:
    """Return the area under the risk-coverage curve: the mean risk over all coverages. Lower is
    better.
    """
    return float(risk_coverage(scores, is_right).mean())


def prr(scores: Scores, is_right: Rights) -> float:
    """Return the prediction rejection ratio over all rejections: 1 for an oracle, 0 for chance.

    (AURC of chance - AURC of score) / (AURC of chance - AURC of oracle). NaN unless there are both
    right and wrong answers.
    """
    risk = float((~is_right).mean())
    oracle = aurc(is_right.astype(np.float64), is_right)
    return float("nan") if risk in (0.0, 1.0) else (risk - aurc(scores, is_right)) / (risk - oracle)


def ece(probabilities: Scores, is_right: Rights, num_bins: int = 10) -> float:
    """Return the expected calibration error over equal-width bins of [0, 1], 1 included."""
    flat, right = probabilities.ravel(), is_right.ravel()
    bins = np.minimum((flat * num_bins).astype(np.int64), num_bins - 1)
    gaps = np.bincount(bins, flat, num_bins) - np.bincount(bins, right, num_bins)
    return float(np.abs(gaps).sum() / flat.size)


def brier(probabilities: Scores, is_right: Rights) -> float:
    """Return the mean squared difference between probability and outcome."""
    return float(np.mean((probabilities - is_right) ** 2))


def calibrated(scores: Scores, is_right: Rights, num_folds: int = 5, seed: int = 0) -> Scores:
    """Return each answer's probability of being right, float64 [Q, A], by isotonic regression on
    other questions.

    Questions are split into folds; each fold is calibrated on the others, so no answer's outcome
    affects its own probability. Raises ValueError for fewer than two questions.
    """
    isotonic: Any = _isotonic()
    fold = np.random.default_rng(seed).permutation(len(scores)) % min(num_folds, len(scores))
    finite = np.where(
        np.isfinite(scores), scores, np.nanmin(np.where(np.isfinite(scores), scores, np.nan)) - 1
    )
    probabilities = np.empty_like(finite)
    for part in np.unique(fold):
        here = fold == part
        model = isotonic(y_min=0, y_max=1, out_of_bounds="clip")
        model.fit(finite[~here].ravel(), is_right[~here].ravel().astype(np.float64))
        probabilities[here] = model.predict(finite[here].ravel()).reshape(finite[here].shape)
    return probabilities


def bootstrap(
    figure: Callable[[Scores, Rights], float],
    scores: Scores,
    is_right: Rights,
    num_samples: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Return a figure with its 2.5 % and 97.5 % quantiles over bootstrap resamples of questions,
    each kept with all its answers.

    Resamples for which the figure is undefined are left out.
    """
    random = np.random.default_rng(seed)
    values = []
    for _ in range(num_samples):
        rows = random.integers(0, len(scores), len(scores))
        value = figure(scores[rows], is_right[rows])
        if not np.isnan(value):
            values.append(value)
    low, high = np.quantile(values, [0.025, 0.975]) if values else (float("nan"), float("nan"))
    return Estimate(figure(scores, is_right), float(low), float(high), len(scores))


def _isotonic() -> Any:
    from sklearn.isotonic import IsotonicRegression

    return IsotonicRegression
