"""Which of several combined scores carry weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dise_eval.calibration.fitting import Labels, combined, logistic
from dise_eval.statistics.metrics import Scores, auroc
from dise_eval.statistics.resampling import Estimate, Resampled, rows_of


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a score carries in a combination. weight: of one standard deviation of it. auroc: its
    own; auroc_with, auroc_without, gain: the combination's on questions left out of the fit, with
    and without it, and their difference. Intervals are by bootstrap over questions.
    """

    weight: Estimate
    auroc: float
    auroc_with: float
    auroc_without: float
    gain: Estimate


def contributions(labels: Labels) -> list[Contribution]:
    """Return what each score of labels with scores [n, K] carries."""
    count = labels.scores.shape[1]
    columns = [labels.scores, *(np.delete(labels.scores, k, 1) for k in range(count))]
    values = np.array([combined(replace(labels, scores=some)).scores for some in columns])

    def figures(rows: npt.NDArray[np.int64]) -> Scores:
        sample = labels.of(rows)
        weights = logistic(sample).weights * sample.scores.std(axis=0)
        return np.concatenate([weights, auroc(values[:, rows], sample.is_right)])

    drawn = np.array([figures(rows) for rows in _resamples(labels)])
    whole = figures(np.arange(len(labels))).tolist()
    told = [Resampled(*pair, labels.num_questions) for pair in zip(whole, drawn.T, strict=True)]
    weights, every, without = told[:count], told[count], told[count + 1 :]
    alone = auroc(labels.scores.T, labels.is_right).tolist()
    return [
        Contribution(weight.estimate, own, every.value, rest.value, every.minus(rest).estimate)
        for weight, own, rest in zip(weights, alone, without, strict=True)
    ]


def _resamples(labels: Labels) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the rows of each resample of questions, with all their answers."""
    counts = np.unique(labels.questions, return_counts=True)[1]
    members = np.split(np.argsort(labels.questions, kind="stable"), np.cumsum(counts)[:-1])
    for questions in rows_of(len(members)):
        yield np.concatenate([members[question] for question in questions])
