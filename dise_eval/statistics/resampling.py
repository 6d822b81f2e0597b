"""Bootstrap over questions, each kept with all its answers: intervals of figures, and of
the differences of two scorers on the same resamples.

Arrays: scores float64 and is_right bool, [..., Q, A], for Q questions with A answers
each. The resamples are those of scipy.stats.bootstrap with the same seed; unlike it, a
resample in which a figure is undefined is left out, and below LEAST_QUESTIONS there is no
interval: what few questions say of themselves is surer than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dise_eval.statistics import metrics
from dise_eval.statistics.metrics import Rights, Scores

Figure = Callable[[Scores, Rights], Scores]

LEAST_QUESTIONS, LEAST_OF_KIND = 20, 5
"""Questions, and answers right and wrong, from which on there is a ROC-AUC, an ECE or an
interval."""

NUM_SAMPLES = 1000
CELLS = 2**21
"""Numbers that one array of resampled answers may hold."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate, its 95 % interval and number of questions; NaN if undefined."""

    value: float
    low: float
    high: float
    num_questions: int
    is_difference: bool = False


@dataclass(frozen=True, slots=True)
class Resampled:
    """A figure of the answers, and its values over the resamples."""

    value: float
    values: Scores
    num_questions: int
    is_difference: bool = False

    def minus(self, other: Resampled) -> Resampled:
        """Return the difference from a figure of the same answers, by resamples."""
        values = self.values - other.values
        return Resampled(self.value - other.value, values, self.num_questions, True)

    @property
    def estimate(self) -> Estimate:
        """The figure with the 2.5 % and 97.5 % quantiles of its defined values."""
        defined = self.values[~np.isnan(self.values)]
        low, high = np.quantile(defined, [0.025, 0.975]) if len(defined) else (np.nan, np.nan)
        return Estimate(self.value, float(low), float(high), self.num_questions, self.is_difference)


def auroc_per_question(scores: Scores, is_right: Rights) -> Scores:
    """Return the mean AUROC within questions of both kinds; NaN if there are none."""
    within = metrics.auroc(scores, is_right)
    is_defined = ~np.isnan(within)
    with np.errstate(invalid="ignore"):
        mean: Scores = np.where(is_defined, within, 0).sum(axis=-1) / is_defined.sum(axis=-1)
    return mean


def pool(figure: Figure) -> Figure:
    """Return the figure of all answers, whichever question they are to."""

    def of_all(scores: Scores, is_right: Rights) -> Scores:
        shape = (*scores.shape[:-2], -1)
        return figure(scores.reshape(shape), is_right.reshape(shape))

    return of_all


def best_of_n(scores: Scores, is_right: Rights) -> Scores:
    """Return the share of questions whose answer with the highest score is right."""
    best = scores.argmax(axis=-1, keepdims=True)
    share: Scores = np.take_along_axis(is_right, best, axis=-1).mean(axis=(-2, -1))
    return share


FIGURES: Mapping[str, Figure] = {
    "auroc_pooled": pool(metrics.auroc),
    "auroc_per_question": auroc_per_question,
    "prr": pool(metrics.prr),
    "aurc": pool(metrics.aurc),
    "best_of_n": best_of_n,
}
"""The figures that have intervals, of arrays [..., Q, A]."""


def is_enough(num_questions: int, num_right: int, num_wrong: int) -> bool:
    """Return whether answers suffice for figures of how well scores tell them apart."""
    return num_questions >= LEAST_QUESTIONS and min(num_right, num_wrong) >= LEAST_OF_KIND


def has_both(is_right: Rights) -> Rights:
    """Return which questions have both right and wrong answers, bool [Q]."""
    num_right = is_right.sum(axis=1)
    is_mixed: Rights = (num_right > 0) & (num_right < is_right.shape[1])
    return is_mixed


def rows_of(num_questions: int) -> npt.NDArray[np.int64]:
    """Return which questions each resample holds, int64 [NUM_SAMPLES, num_questions]."""
    return np.random.default_rng(0).integers(0, num_questions, (NUM_SAMPLES, num_questions))


def resample(name: str, scores: Scores, is_right: Rights) -> Resampled:
    """Return one of FIGURES on all resamples, computed in parts of bounded size; a ROC-AUC
    of too few answers is NaN, and so are resamples of too few questions.
    """
    figure, rows = FIGURES[name], rows_of(len(scores))
    parts = np.array_split(rows, min(NUM_SAMPLES, -(-rows.size * scores.shape[1] // CELLS)))
    values = np.concatenate([figure(scores[part], is_right[part]) for part in parts])
    is_within = figure is auroc_per_question
    num_questions = int(has_both(is_right).sum()) if is_within else len(scores)
    is_told = is_enough(len(scores), int(is_right.sum()), int((~is_right).sum()))
    value = float(figure(scores, is_right)) if is_told or not name.startswith("auroc") else np.nan
    return Resampled(value, values if is_told else np.full_like(values, np.nan), num_questions)


def mean(values: Scores, is_difference: bool = False) -> Estimate:
    """Return the mean over questions, [Q], with its 95 % interval unless they are few."""
    means = values[rows_of(len(values))].mean(axis=1)
    means = means if len(values) >= LEAST_QUESTIONS else np.full_like(means, np.nan)
    return Resampled(float(values.mean()), means, len(values), is_difference).estimate


def upper_bound(num_hits: float, num_misses: float, delta: float) -> float:
    """Return Clopper and Pearson's bound b, where P(Bin(n, b) <= num_hits) = delta: the
    probability of a hit is above it with probability at most delta. 1 without misses.
    """
    from scipy.special import betaincinv

    return float(betaincinv(num_hits + 1, num_misses, 1 - delta)) if num_misses > 0 else 1.0


def binomial_interval(num_right: float, num_wrong: float) -> tuple[float, float]:
    """Return Clopper and Pearson's 95 % interval of the share that is right."""
    low = 1 - upper_bound(num_wrong, num_right, 0.025)
    return low, upper_bound(num_right, num_wrong, 0.025)
