"""Makes a calibration from labelled scores, and tells what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np

from dise_core.errors import InputError
from dise_core.records import Record
from dise_core.scoring.calibration import Calibration, Figures, Fit
from dise_eval.calibration import choosing, fitting, searching
from dise_eval.calibration.fitting import Labels, Method
from dise_eval.calibration.guarantee import Promise, Rule
from dise_eval.calibration.rows import Origins
from dise_eval.calibration.searching import Search
from dise_eval.statistics.metrics import Scores
from dise_eval.statistics.resampling import is_enough


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A calibration, with each label's score and probability by a fit on other questions.
    search: what was tried for the threshold. place: of the score that was chosen of
    several.
    """

    calibration: Calibration
    labels: Labels
    probabilities: Scores
    search: Search | None
    place: int | None = None


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What a calibration does on questions that nothing of it was fitted on. figures:
    None for too few answers. coverage, risk: the share of answers at or above its
    threshold, and the share of wrong ones among these.
    """

    num_labels: int
    num_questions: int
    figures: Figures | None
    coverage: float | None
    risk: float | None

    def to_dict(self) -> Record:
        return asdict(self) | {"figures": self.figures and self.figures.model_dump()}


def make(
    labels: Labels,
    origins: Origins,
    method: Method | None,
    promise: Promise | None,
    rule: Rule,
    source: str,
) -> Made:
    """Return the calibration. Raises InputError without a map or a threshold that does as
    asked.

    One of several contenders is chosen first; for a promise, which needs labels that the
    choice owes nothing to, on half of the questions, and all else is fitted on the others.
    """
    if len(origins) > 1:
        choosers, labels = labels.split(0.5) if promise else (labels, labels)
        compared = choosing.choose(choosers, [*origins])
        name, place = compared.chosen, [*origins].index(compared.chosen)
        origin = {name: origins[name] | {"compared": compared}}
        labels = replace(labels, scores=labels.scores[:, place])
        return replace(make(labels, origin, method, promise, rule, source), place=place)
    [scored_by] = origins.values()
    labels.check()
    name = method or ("isotonic" if len(labels) >= fitting.ENOUGH_FOR_ISOTONIC else "platt")
    map_, probabilities = fitting.FITS[name](labels), fitting.held_out(name, labels)
    search = searching.search(rule, labels, promise) if promise else None
    calibration = Calibration(
        **scored_by,
        map=map_,
        num_labels=len(labels),
        num_right=int(labels.is_right.sum()),
        num_questions=labels.num_questions,
        figures=fitting.figures(probabilities, labels),
        threshold=None if search is None else search.threshold,
        source=source,
    )
    return Made(calibration, labels, probabilities, search)


def make_fields(
    groups: Mapping[str, Labels], overall: Calibration, fit: Callable[[Labels], Made]
) -> tuple[Calibration, dict[str, str]]:
    """Return the calibration of fields that have a fit, and why others have none. Raises
    InputError if none has one.
    """
    fields, left_out = dict[str, Fit](), dict[str, str]()
    for name, labels in groups.items():
        try:
            labels.check(fitting.LEAST_OF_FIELD)
            fields[name] = Fit(**fit(labels).calibration.model_dump(include={*Fit.model_fields}))
        except InputError as error:
            left_out[name] = str(error)
    if not fields:
        raise InputError("; ".join(f"{name}: {why}" for name, why in left_out.items()), "scored")
    return overall.model_copy(update={"map": None, "threshold": None, "fields": fields}), left_out


def try_out(result: Made, labels: Labels) -> HeldOut:
    """Return its figures on other labels. Raises InputError unless both kinds exist."""
    if labels.is_right.all() or not labels.is_right.any():
        raise InputError(
            f"the {len(labels)} answers held out are not of both kinds: hold out more questions",
            "held_out",
        )
    calibration = result.calibration
    if result.place is not None:
        labels = replace(labels, scores=labels.scores[:, result.place])
    probabilities = np.array([*map(calibration.probability, labels.scores.tolist())], np.float64)
    coverage = risk = None
    if calibration.threshold is not None:
        is_answered = labels.scores >= calibration.threshold.score
        coverage = float(is_answered.mean())
        risk = float(np.mean(~labels.is_right[is_answered])) if is_answered.any() else 0.0
    num_right = int(labels.is_right.sum())
    is_told = is_enough(labels.num_questions, num_right, len(labels) - num_right)
    figures = fitting.figures(probabilities, labels) if is_told else None
    return HeldOut(len(labels), labels.num_questions, figures, coverage, risk)
