"""Which of several combined scores carry weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from dise_core.records import Record
from dise_eval.calibration.fitting import Labels, by_folds, combination, weigher
from dise_eval.statistics.metrics import auroc
from dise_eval.statistics.resampling import Resampled


def settings(labels: Labels, parts: Sequence[Record]) -> Record:
    """Return the settings of scorer combined: the parts with their fitted weights."""
    scaler, model = combination(labels)
    weights = model.coef_[0] / scaler.scale_
    weighed = zip(parts, weights.tolist(), strict=True)
    return {
        "parts": [part | {"weight": weight} for part, weight in weighed],
        "intercept": float(model.intercept_[0] - weights @ scaler.mean_),
    }


def better_part(parts: Sequence[Record]) -> Record | None:
    """Return the best of the `contributions`, if it alone has a higher ROC-AUC than the
    combination has on questions left out of its fit.
    """
    best = max(parts, key=lambda part: float(part["auroc"]), default=None)
    return None if best is None or best["auroc"] <= best["auroc_with"] else best


def contributions(labels: Labels, names: Sequence[str]) -> list[Record]:
    """Return what each score carries: its weight for one standard deviation, its own
    ROC-AUC, and that of the combination with and without it on questions left out of the
    fit, with the gain. Estimates have 95 % intervals by bootstrap over questions.
    """
    count, is_right = len(names), labels.is_right
    columns = [labels.scores, *(np.delete(labels.scores, k, axis=1) for k in range(count))]
    values = np.array([by_folds(weigher, replace(labels, scores=scores)) for scores in columns])
    first, *resamples = [
        [*combination(labels.of(rows))[1].coef_[0], *auroc(values[:, rows], is_right[rows])]
        for rows in labels.resamples()
        if 0 < is_right[rows].sum() < len(rows)
    ]
    figures = [
        Resampled(float(value), np.array(again), labels.num_questions)
        for value, *again in zip(first, *resamples, strict=True)
    ]
    together, alone = figures[count], auroc(labels.scores.T, is_right).tolist()
    return [
        {
            "score": name,
            "weight": asdict(figures[place].estimate),
            "auroc": alone[place],
            "auroc_with": together.value,
            "auroc_without": figures[count + 1 + place].value,
            "gain": asdict(together.minus(figures[count + 1 + place]).estimate),
        }
        for place, name in enumerate(names)
    ]
