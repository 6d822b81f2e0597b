"""Bootstrap over questions, each kept with all its answers: figures of all resamples at once, their
intervals, and the differences of two scorers on the same resamples.

Arrays: scores and is_right as in metrics.py, [Q, A]; counts int64 [B, Q], how often each of B
resamples holds each question; a figure's values float64 [B], NaN where it is undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dise_app.evaluation import metrics
from dise_app.evaluation.metrics import Estimate, Rights, Scores

Counts = npt.NDArray[np.int64]
Figure = Callable[[Scores, Rights, Counts], Scores]

NUM_SAMPLES = 1000
CELLS = 2**21
"""Numbers that one array of resampled answers may hold."""


def counts_of(num_questions: int, num_samples: int = NUM_SAMPLES, seed: int = 0) -> Counts:
    """Return how often each question is in each resample, int64 [num_samples, num_questions]."""
    drawn = np.random.default_rng(seed).integers(0, num_questions, (num_samples, num_questions))
    places = drawn + np.arange(num_samples)[:, None] * num_questions
    found: Counts = np.bincount(places.ravel(), minlength=drawn.size).reshape(drawn.shape)
    return found


def aurocs(scores: Scores, is_right: Rights, counts: Counts) -> Scores:
    """Return the AUROC over all answers, as `metrics.auroc`."""
    right, wrong = _by_score(scores, is_right, counts)
    above = np.cumsum(right, axis=1) - right / 2
    return _ratio((above * wrong).sum(axis=1), right.sum(axis=1) * wrong.sum(axis=1))


def aurocs_per_question(scores: Scores, is_right: Rights, counts: Counts) -> Scores:
    """Return the mean AUROC within questions, as `metrics.auroc_per_question`."""
    both = np.flatnonzero(metrics.has_both(is_right))
    each = np.array([metrics.auroc(scores[row], is_right[row]) for row in both])
    return _ratio(counts[:, both] @ each, counts[:, both].sum(axis=1).astype(float))


def aurcs(scores: Scores, is_right: Rights, counts: Counts) -> Scores:
    """Return the area under the risk-coverage curve, as `metrics.aurc`."""
    return _areas(*_by_score(scores, is_right, counts))


def prrs(scores: Scores, is_right: Rights, counts: Counts) -> Scores:
    """Return the prediction rejection ratio over all rejections, as `metrics.prr`."""
    right, wrong = _by_score(scores, is_right, counts)
    num_right, num_wrong = right.sum(axis=1, keepdims=True), wrong.sum(axis=1, keepdims=True)
    none = np.zeros_like(num_right)
    oracle = _areas(np.hstack([num_right, none]), np.hstack([none, num_wrong]))
    risk = num_wrong[:, 0] / (num_right + num_wrong)[:, 0]
    return _ratio(risk - _areas(right, wrong), np.where(risk % 1 == 0, 0, risk - oracle))


FIGURES: Mapping[str, tuple[Callable[[Scores, Rights], float], Figure]] = {
    "auroc_pooled": (metrics.auroc, aurocs),
    "auroc_per_question": (metrics.auroc_per_question, aurocs_per_question),
    "prr": (metrics.prr, prrs),
    "aurc": (metrics.aurc, aurcs),
}
"""The figures that have intervals: of the answers as they are, and of all resamples."""


def values_of(figure: Figure, scores: Scores, is_right: Rights) -> Scores:
    """Return a figure's values over the resamples, computed in parts of bounded size."""
    counts = counts_of(len(scores))
    num_parts = min(len(counts), -(-len(counts) * scores.size // CELLS))
    parts = np.array_split(counts, num_parts)
    return np.concatenate([figure(scores, is_right, part) for part in parts])


@dataclass(frozen=True, slots=True)
class Resampled:
    """A figure of the answers as they are, its values over the resamples, and the number of
    questions that it is computed on.
    """

    value: float
    values: Scores
    num_questions: int

    def minus(self, other: Resampled) -> Resampled:
        """Return the difference from another figure of the same answers, resample by resample."""
        return Resampled(self.value - other.value, self.values - other.values, self.num_questions)

    @property
    def estimate(self) -> Estimate:
        """The figure with the 2.5 % and 97.5 % quantiles of its defined values."""
        defined = self.values[~np.isnan(self.values)]
        low, high = np.quantile(defined, [0.025, 0.975]) if len(defined) else (np.nan, np.nan)
        return Estimate(self.value, float(low), float(high), self.num_questions)


def resampled(name: str, scores: Scores, is_right: Rights) -> Resampled:
    """Return one of FIGURES on all resamples."""
    figure, of_resamples = FIGURES[name]
    is_within = figure is metrics.auroc_per_question
    num_questions = int(metrics.has_both(is_right).sum()) if is_within else len(scores)
    values = values_of(of_resamples, scores, is_right)
    return Resampled(figure(scores, is_right), values, num_questions)


def mean(values: Scores) -> Estimate:
    """Return the mean over questions, [Q], with its 95 % interval."""
    means = counts_of(len(values)) @ values / len(values)
    return Resampled(float(values.mean()), means, len(values)).estimate


def band(
    curve: Callable[[Scores, Rights], Scores],
    scores: Scores,
    is_right: Rights,
    num_samples: int = 200,
    seed: int = 0,
) -> tuple[Scores, Scores]:
    """Return the pointwise 2.5 % and 97.5 % quantiles of a curve over resamples, each of the
    curve's length; resamples for which it is undefined are left out.
    """
    random = np.random.default_rng(seed)
    drawn = random.integers(0, len(scores), (num_samples, len(scores)))
    values = np.array([curve(scores[rows], is_right[rows]) for rows in drawn])
    low, high = np.quantile(values[~np.isnan(values).any(axis=1)], [0.025, 0.975], axis=0)
    return low, high


def _by_score(scores: Scores, is_right: Rights, counts: Counts) -> tuple[Scores, Scores]:
    """Return how many right and how many wrong answers each resample holds of each distinct score,
    the surest first, float64 [B, D] both.
    """
    from scipy.sparse import csr_matrix

    distinct, group = np.unique(-scores.ravel(), return_inverse=True)
    question = np.repeat(np.arange(len(scores)), scores.shape[1])
    tables = (
        csr_matrix((kind.ravel(), (question, group)), (len(scores), len(distinct)))
        for kind in (is_right.astype(float), (~is_right).astype(float))
    )
    right, wrong = (np.asarray((table.T @ counts.T).T) for table in tables)
    return right, wrong


def _areas(right: Scores, wrong: Scores) -> Scores:
    """Return the mean risk over all coverages, float64 [B]; answers of one score share their errors
    evenly, so that the j-th of s adds (errors before + j wrong / s) / (answers before + j).
    """
    sizes = right + wrong
    ends = np.cumsum(sizes, axis=1)
    starts, errors = ends - sizes, np.cumsum(wrong, axis=1) - wrong
    num_answers = int(ends[:, -1].max())
    harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, num_answers + 1))])
    sums = harmonic[ends.astype(np.int64)] - harmonic[starts.astype(np.int64)]
    areas = wrong + (errors - wrong * starts / np.maximum(sizes, 1)) * sums
    mean: Scores = areas.sum(axis=1) / ends[:, -1]
    return mean


def _ratio(numerators: Scores, denominators: Scores) -> Scores:
    """Return the quotients, NaN where the denominator is 0."""
    found = np.full(len(numerators), np.nan)
    np.divide(numerators, denominators, out=found, where=denominators != 0)
    return found
