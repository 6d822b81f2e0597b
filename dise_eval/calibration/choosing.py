"""Chooses one of several scores by folds of questions, and tells what choosing gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dise_core.errors import InputError
from dise_core.scoring.calibration import Comparison
from dise_eval.calibration.fitting import Labels
from dise_eval.statistics.metrics import Rights, Scores, auroc
from dise_eval.statistics.resampling import Resampled


def choose(labels: Labels, names: Sequence[str]) -> Comparison:
    """Return which of K scores, [n, K], to take, by names; the first is the simplest.

    All answers to a question are in one fold. On each outer fold, the score that inner
    folds of the other questions choose is set against the simplest. Unless the 95 %
    interval of the difference, by paired bootstrap over questions, is above 0, the
    simplest is kept. Raises InputError where no fold has right and wrong answers.
    """
    labels.check()
    folds = np.array([*labels.folds()])
    paired = labels.scores[:, [0, 0]]
    for here in folds:
        paired[here, 1] = labels.scores[here, _best(labels.of(~here))]
    pair = replace(labels, scores=paired)
    figures = [_within(pair.of(rows), folds[:, rows]) for rows in labels.resamples()]
    gain, *gains = (float(choice - simplest) for simplest, choice in figures)
    if np.isnan(gain):
        raise InputError(
            "No fold of the questions has right and wrong answers, so that no score can be "
            "chosen. Label answers to more questions.",
            "scored",
        )
    estimate = Resampled(gain, np.array(gains), labels.num_questions, True).estimate
    aurocs = auroc(labels.scores.T, labels.is_right).tolist()
    return Comparison(
        aurocs=dict(zip(names, aurocs, strict=True)),
        simplest=names[0],
        chosen=names[_best(labels) if estimate.low > 0 else 0],
        gain=gain,
        low=estimate.low,
        high=estimate.high,
        num_labels=len(labels),
        num_questions=labels.num_questions,
    )


def _best(labels: Labels) -> int:
    """Return the place of the highest ROC-AUC within folds, the first of equals."""
    figures = _within(labels, np.array([*labels.folds()]))
    return int(np.nan_to_num(figures).argmax())


def _within(labels: Labels, folds: Rights) -> Scores:
    """Return the ROC-AUC of each score over the pairs of answers of one fold, [K]; NaN
    without such pairs. Scores of several folds may have been made by different scorers.
    folds: bool [F, n].
    """
    areas, num_pairs = np.zeros(labels.scores.shape[1]), 0
    for part in map(labels.of, folds):
        num_right = int(part.is_right.sum())
        if pairs := num_right * (len(part) - num_right):
            areas += pairs * auroc(part.scores.T, part.is_right)
            num_pairs += pairs
    return areas / num_pairs if num_pairs else np.full_like(areas, np.nan)
