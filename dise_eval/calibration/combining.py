"""Which of several combined scores carry weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from dise_core.records import Record
from dise_eval.calibration.fitting import Labels, by_folds, combination, weigher
from dise_eval.statistics.metrics import auroc
from dise_eval.statistics.resampling import Resampled, rows_of


def settings(labels: Labels, parts: Sequence[Record]) -> Record:
    """Return the settings of scorer combined: the parts with the weights that the labels give."""
    scaler, model = combination(labels)
    weights = model.coef_[0] / scaler.scale_
    weighed = zip(parts, weights.tolist(), strict=True)
    return {
        "parts": [part | {"weight": weight} for part, weight in weighed],
        "intercept": float(model.intercept_[0] - weights @ scaler.mean_),
    }


def better_part(parts: Sequence[Record]) -> Record | None:
    """Return the best of the `contributions`, if it alone has a higher ROC-AUC than the combination
    has on questions left out of its fit.
    """
    best = max(parts, key=lambda part: float(part["auroc"]), default=None)
    return None if best is None or best["auroc"] <= best["auroc_with"] else best


def contributions(labels: Labels, names: Sequence[str]) -> list[Record]:
    """Return what each score carries: its weight for one standard deviation, its own ROC-AUC, and
    that of the combination with and without it on questions left out of the fit, with the gain.
    Estimates have 95 % intervals by bootstrap over questions.
    """
    count, right = len(names), labels.is_right
    columns = [labels.scores, *(np.delete(labels.scores, k, axis=1) for k in range(count))]
    values = np.array([by_folds(weigher, replace(labels, scores=some)) for some in columns])
    members = [np.flatnonzero(labels.questions == one) for one in np.unique(labels.questions)]
    draws = [np.arange(len(members)), *rows_of(len(members))]
    drawn = (np.concatenate([members[one] for one in draw]) for draw in draws)
    first, *others = [
        [*combination(labels.of(rows))[1].coef_[0], *auroc(values[:, rows], right[rows])]
        for rows in drawn
        if 0 < right[rows].sum() < len(rows)
    ]
    told = [
        Resampled(float(value), np.array(again), len(members))
        for value, *again in zip(first, *others, strict=True)
    ]
    weights, whole, without = told[:count], told[count], told[count + 1 :]
    alone = auroc(labels.scores.T, right).tolist()
    return [
        {
            "score": name,
            "weight": asdict(weight.estimate),
            "auroc": own,
            "auroc_with": whole.value,
            "auroc_without": rest.value,
            "gain": asdict(whole.minus(rest).estimate),
        }
        for name, weight, own, rest in zip(names, weights, alone, without, strict=True)
    ]
