"""How well scores tell right answers from wrong ones. Uncertainty is -score, wrong is the
positive class, and ties count half.

Arrays: scores float64 and is_right bool, [..., n]; figures are along the last axis, which
holds the answers, NaN where they are undefined. A score of -inf is the least sure. Those
of probabilities take arrays of any shape as one set of answers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dise_core.arrays import Floats

Scores = npt.NDArray[np.float64]
Rights = npt.NDArray[np.bool_]

NUM_BINS = 10

GRID = 1000
"""Cells of [0, 1] for the smooth calibration error."""


def auroc(scores: Scores, is_right: Rights) -> Scores:
    """Return the probability that a right answer scores above a wrong one; NaN unless
    both exist.

    By the rank sum: scikit-learn's takes neither -inf nor many resamples at once.
    """
    from scipy.stats import rankdata

    num_right = is_right.sum(axis=-1)
    num_wrong = is_right.shape[-1] - num_right
    ranks = (rankdata(scores, axis=-1) * is_right).sum(axis=-1)
    return _ratio(ranks - num_right * (num_right + 1) / 2, num_right * num_wrong)


def risk_coverage(scores: Scores, is_right: Rights) -> Scores:
    """Return the share of wrong answers among the k surest, for k = 1..n, [..., n];
    answers with equal scores share their errors evenly.
    """
    from scipy.stats import rankdata

    order = np.argsort(-scores, axis=-1)
    ranked = -np.take_along_axis(scores, order, axis=-1)
    wrong = np.take_along_axis(~is_right, order, axis=-1)
    errors = np.concatenate([np.zeros_like(ranked[..., :1]), np.cumsum(wrong, axis=-1)], axis=-1)
    starts = rankdata(ranked, "min", axis=-1).astype(np.int64) - 1
    ends = rankdata(ranked, "max", axis=-1).astype(np.int64)
    before, after = (np.take_along_axis(errors, place, axis=-1) for place in (starts, ends))
    expected: Scores = np.cumsum((after - before) / (ends - starts), axis=-1)
    return expected / np.arange(1, scores.shape[-1] + 1)


def aurc(scores: Scores, is_right: Rights) -> Scores:
    """Return the mean risk over all coverages. Lower is better."""
    area: Scores = risk_coverage(scores, is_right).mean(axis=-1)
    return area


def eaurc(scores: Scores, is_right: Rights) -> Scores:
    """Return the AURC in excess of an oracle's, which keeps all right answers first."""
    return aurc(scores, is_right) - aurc(is_right.astype(np.float64), is_right)


def augrc(scores: Scores, is_right: Rights) -> Scores:
    """Return the area under the generalized risk-coverage curve (Traub et al., 2024): the
    mean over all coverages of the share of all answers that are kept and wrong. Lower is
    better.
    """
    num_answers = scores.shape[-1]
    curve = risk_coverage(scores, is_right)
    area: Scores = np.mean(curve * np.arange(1, num_answers + 1) / num_answers, axis=-1)
    return area


def prr(scores: Scores, is_right: Rights, max_rejection: float = 1.0) -> Scores:
    """Return the prediction rejection ratio: 1 for an oracle, 0 for chance.

    (area of chance - area of score) / (area of chance - area of oracle), each the mean
    risk where fewer than int(max_rejection n) answers are rejected, as lm-polygraph
    counts. NaN if nothing is rejected, or unless there are both right and wrong answers.
    """
    num_rejections = int(max_rejection * is_right.shape[-1])
    risk = (~is_right).mean(axis=-1)
    if num_rejections == 0:
        return np.full_like(risk, np.nan)
    area, oracle = (
        risk_coverage(ranking, is_right)[..., -num_rejections:].mean(axis=-1)
        for ranking in (scores, is_right.astype(np.float64))
    )
    return _ratio(risk - area, np.where(risk % 1 == 0, 0, risk - oracle))


def prr_half(scores: Scores, is_right: Rights) -> Scores:
    """Return the prediction rejection ratio up to half of the answers."""
    return prr(scores, is_right, 0.5)


def ece(probabilities: Scores, is_right: Rights) -> float:
    """Return the expected calibration error by equal widths of [0, 1]; 1 is in the last."""
    flat = probabilities.ravel()
    return _gap(flat, is_right, np.minimum((flat * NUM_BINS).astype(np.int64), NUM_BINS - 1))


def adaptive_ece(probabilities: Scores, is_right: Rights) -> float:
    """Return the expected calibration error over bins of equal mass. Equal probabilities
    share the bin of the first of them, so that bins may differ in size.
    """
    flat = probabilities.ravel()
    return _gap(flat, is_right, equal_mass_bins(flat))


def equal_mass_bins(values: Scores) -> npt.NDArray[np.int64]:
    """Return each value's bin, int64 [n]: how many are smaller, in units n / NUM_BINS."""
    from scipy.stats import rankdata

    num_smaller: npt.NDArray[np.int64] = rankdata(values, "min").astype(np.int64) - 1
    return num_smaller * NUM_BINS // len(values)


def smooth_ece(probabilities: Scores, is_right: Rights) -> float:
    """Return the smooth calibration error (Błasiok and Nakkiran, 2023), which needs no
    bins: the integral of the absolute residuals smoothed by a Gaussian that is reflected
    at 0 and 1, whose width s solves smECE(s) = s. Probabilities are rounded to 1 / GRID.
    """
    from scipy.ndimage import gaussian_filter1d
    from scipy.optimize import brentq

    flat, outcomes = probabilities.ravel(), is_right.ravel()
    cells = np.minimum((flat * GRID).astype(np.int64), GRID - 1)
    residuals = np.bincount(cells, outcomes - flat, GRID) / flat.size

    def smoothed(width: float) -> float:
        curve = gaussian_filter1d(residuals, width * GRID, mode="reflect", truncate=6)
        return float(np.abs(curve).sum())

    start = 1 / GRID**2
    if smoothed(start) <= start:
        return smoothed(start)
    return min(1.0, float(brentq(lambda width: smoothed(width) - width, start, 1.1, xtol=start)))


def brier(probabilities: Scores, is_right: Rights) -> float:
    """Return the mean squared difference between probability and outcome."""
    from sklearn.metrics import brier_score_loss

    return float(brier_score_loss(is_right.ravel(), probabilities.ravel(), pos_label=True))


def brier_skill(probabilities: Scores, is_right: Rights) -> float:
    """Return 1 - Brier score / that of the base rate: 1 for an oracle, 0 for the base
    rate itself. NaN unless there are both right and wrong answers.
    """
    rate = float(is_right.mean())
    if rate in (0.0, 1.0):
        return float("nan")
    return 1 - brier(probabilities, is_right) / (rate * (1 - rate))


def _gap(probabilities: Scores, is_right: Rights, bins: npt.NDArray[np.int64]) -> float:
    """Return the mean over answers of their bin's gap between probability and outcome."""
    gaps = np.bincount(bins, probabilities) - np.bincount(bins, is_right.ravel())
    return float(np.abs(gaps).sum() / probabilities.size)


def _ratio(numerators: Floats, denominators: Floats) -> Scores:
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients: Scores = np.where(denominators == 0, np.nan, numerators / denominators)
    return quotients
