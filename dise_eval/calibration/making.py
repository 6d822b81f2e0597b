"""From labels to a calibration: a map, a threshold that keeps a promise, a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from dise_core.errors import InputError
from dise_core.plugins.catalog import Catalog
from dise_core.records import Fields, Record
from dise_core.scoring.calibration import Calibration, CalibrationFile, Fit, Threshold
from dise_eval.calibration import choosing, fitting, label_rows, searching, sentences
from dise_eval.calibration.fitting import Labels, M, Making, Map, Method, Outcomes
from dise_eval.calibration.guarantee import Promise, Rule
from dise_eval.calibration.label_rows import Origins
from dise_eval.calibration.searching import Search
from dise_eval.statistics.metrics import Scores
from dise_eval.statistics.resampling import is_enough

G = TypeVar("G")
F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Promises:
    """A risk that is kept by a rule, and the share of answer sets that hold the truth."""

    risk: Promise | None = None
    rule: Rule = "sgr"
    coverage: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Fitted(Generic[M]):
    """labels: that the map was fitted on. held_out: its outcomes on questions left out.
    promised: that a threshold is chosen on. search: how it was.
    """

    map: M
    labels: Labels
    held_out: Labels
    promised: Labels
    search: Search | None

    @property
    def threshold(self) -> Threshold | None:
        """Raises InputError, with what was tried, where none keeps the promise."""
        return None if self.search is None else self.search.threshold


@dataclass(frozen=True, slots=True)
class Result:
    """A calibration, what its JSON tells besides, what is printed, and what is drawn."""

    calibration: CalibrationFile
    about: Record
    lines: Iterable[str]
    drawn: tuple[Scores, Labels, Search | None] | None = None


def fit(
    labels: Labels,
    makings: Callable[[Labels], Iterable[Making[M]]],
    outcomes: Outcomes[M],
    promises: Promises,
    sure: Outcomes[M] | None = None,
) -> Fitted[M]:
    """Return the best of the maps that are made, and the threshold. sure: by a map, what
    the threshold is compared with, which is then chosen on half of the questions, and the
    map on the others; None for the scores, which owe nothing to a map. Raises InputError
    for what cannot be fitted, and for what cannot be promised.
    """
    is_apart = sure is not None and (promises.risk or promises.coverage)
    labels, promised = labels.split(0.5) if is_apart else (labels, labels)
    map_, held_out = fitting.best_map(labels, makings(labels), outcomes)
    ranked = promised if sure is None else sure(map_, promised)
    risk, rule = promises.risk, promises.rule
    search = None if risk is None else searching.search(rule, ranked, risk)
    return Fitted(map_, labels, held_out, promised, search)


def fit_each(
    groups: Mapping[str, G], fit: Callable[[str, G], F]
) -> tuple[dict[str, F], dict[str, str]]:
    """Return the fits of the groups that have one, by their keys, and why others have
    none. Raises InputError if none has one.
    """
    fits, left_out = dict[str, F](), dict[str, str]()
    for key, group in groups.items():
        try:
            fits[key] = fit(key, group)
        except InputError as error:
            left_out[key] = str(error)
    if not fits:
        raise InputError("; ".join(f"{key}: {why}" for key, why in left_out.items()), "scored")
    return fits, left_out


def calibrate(path: Path, options: Fields, promises: Promises, catalog: Catalog) -> Result:
    """Return the calibration of labelled answers, or of their fields."""
    labels, origins = label_rows.read(path, options, catalog)
    method, name = options["method"], path.name
    if not options["fields"]:
        training, holdout = labels.split(options["held_out"])
        calibration, fitted = make(training, origins, method, promises, name)
        if calibration.compared is not None:
            holdout = _column(holdout, [*origins].index(calibration.compared.chosen))
        tried = try_out(fitted, holdout) if options["held_out"] else None
        about: Record = {"held_out": tried}
        if fitted.search is not None:
            about["threshold_reason"] = fitted.search.reason
        drawn = fitted.held_out.scores, fitted.labels, fitted.search
        return Result(calibration, about, sentences.of_answers(calibration, about), drawn)
    if options["held_out"] or labels.scores.ndim > 1:
        raise InputError("--fields takes one --score and no --held-out")
    groups = label_rows.by_field(path, options)
    overall = make(labels, origins, method, Promises(), name)[0]

    def fit_field(_: str, labels: Labels) -> Fit:
        labels.check(fitting.LEAST_OF_FIELD)
        return fit_answers(labels, method, promises)[0]

    fields, left_out = fit_each(groups, fit_field)
    changes = {"map": None, "threshold": None, "fields": fields}
    texts = {name: sentences.of_fit(fit) for name, fit in fields.items()}
    lines = sentences.of_groups(texts, left_out)
    return Result(overall.model_copy(update=changes), {"left_out": left_out}, lines)


def make(
    labels: Labels, origins: Origins, method: Method | None, promises: Promises, source: str
) -> tuple[Calibration, Fitted[Map]]:
    """Return the calibration, and what it is of. Raises InputError without a map or a
    threshold that does as asked.

    One of several contenders is chosen first; for a promise, which needs labels that the
    choice owes nothing to, on half of the questions, and all else is fitted on the others.
    """
    if len(origins) > 1:
        choosers, labels = labels.split(0.5) if promises.risk else (labels, labels)
        compared = choosing.choose(choosers, [*origins])
        labels = _column(labels, [*origins].index(compared.chosen))
        origins = {compared.chosen: origins[compared.chosen] | {"compared": compared}}
    [scored_by] = origins.values()
    fit, fitted = fit_answers(labels, method, promises)
    return Calibration(**scored_by, **dict(fit), source=source), fitted


def _column(labels: Labels, place: int) -> Labels:
    return replace(labels, scores=labels.scores[:, place])


def fit_answers(
    labels: Labels, method: Method | None, promises: Promises
) -> tuple[Fit, Fitted[Map]]:
    """Return the fit of answers by their scores, [n]."""
    labels.check()
    name = method or ("isotonic" if len(labels) >= fitting.ENOUGH_FOR_ISOTONIC else "platt")
    making = partial(_of_both_kinds, name)
    fitted = fit(labels, lambda _: [making], fitting.probable, promises)
    result = Fit(
        map=fitted.map,
        num_labels=len(labels),
        num_right=int(labels.is_right.sum()),
        num_questions=labels.num_questions,
        figures=fitting.figures(fitted.held_out.scores, labels),
        threshold=fitted.threshold,
    )
    return result, fitted


def _of_both_kinds(method: Method, labels: Labels) -> Map:
    if labels.is_right.all() or not labels.is_right.any():
        raise InputError("too few answers of one kind: without one fold of questions all agree")
    return fitting.FITS[method](labels)


def try_out(fitted: Fitted[Map], labels: Labels) -> Record:
    """Return what a fit does on questions that nothing of it was fitted on: its figures,
    None for too few answers, and with a threshold the share of answers at or above it,
    and that of wrong ones among these. Raises InputError unless both kinds exist.
    """
    if labels.is_right.all() or not labels.is_right.any():
        raise InputError(
            f"the {len(labels)} answers held out are not of both kinds: hold out more questions",
            "held_out",
        )
    coverage = risk = None
    if (threshold := fitted.threshold) is not None:
        is_answered = labels.scores >= threshold.score
        coverage = float(is_answered.mean())
        risk = float(np.mean(~labels.is_right[is_answered])) if is_answered.any() else 0.0
    num_questions, num_right = labels.num_questions, int(labels.is_right.sum())
    figures = None
    if is_enough(num_questions, num_right, len(labels) - num_right):
        figures = dict(fitting.figures(fitting.probable(fitted.map, labels).scores, labels))
    counts = {"num_labels": len(labels), "num_questions": num_questions}
    return {**counts, "figures": figures, "coverage": coverage, "risk": risk}
