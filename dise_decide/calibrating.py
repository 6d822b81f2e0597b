"""dise calibrate --decisions: from labelled decisions to a calibration."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from dise_app.files.texts import write_json
from dise_core.errors import InputError
from dise_core.records import Fields
from dise_decide.calibration import DecisionCalibration, QuestionFit
from dise_decide.fitting import Asked, calibration, line_of
from dise_eval.calibration import rows
from dise_eval.calibration.fitting import Labels
from dise_eval.calibration.guarantee import Promise
from dise_eval.reports import reliability


def calibrate(path: Path, output: Path, options: Fields, as_json: bool) -> None:
    """LABELLED is of dise decide --output, with "labels"."""
    if options["method"] or options["held_out"] or options["answers_each"]:
        raise InputError("--decisions takes no --method, no --held-out and no --answers-each")
    promise = options["max_risk"] and Promise(options["max_risk"], options["risk_confidence"])
    given = ((number, line_of(number, record)) for number, record in rows.records(path))
    lines = {number: line for number, line in given if line is not None}
    if not lines:
        raise InputError(f'no line of {path} holds "labels"', "scored")
    asked = Asked(promise, options["rule"], options["coverage"])
    made, left_out, held_out = calibration(lines, asked, path.name)
    values, events, inputs = (np.array(column) for column in zip(*held_out, strict=True))
    picture = output.with_suffix(".png")
    reliability.picture(values, Labels(values, events, inputs), None, picture)
    write_json(output, made.to_dict())
    if as_json:
        told = {"calibration": made.to_dict(), "left_out": left_out}
        print(json.dumps(told, ensure_ascii=False, allow_nan=False))
    else:
        _show(made, left_out)
        print(f"written: {output}, {picture}")


def _show(made: DecisionCalibration, left_out: dict[str, str]) -> None:
    table = Table("question", "labels", "map", "ECE", "calibrated", "threshold", "answer sets")
    fits = {f"name {name}": fit for name, fit in made.names.items()}
    fits |= {f"type {name}": fit for name, fit in made.types.items()}
    for name, fit in fits.items():
        told = f"{fit.before.ece:.4f}", f"{fit.after.ece:.4f}", _threshold(fit), _sets(fit)
        method = "none" if fit.map is None else fit.map.method
        table.add_row(name, str(fit.num_labels), method, *told)
    console = Console(highlight=False, emoji=False)
    console.print(table, markup=False)
    for name, reason in left_out.items():
        print(f"{name}: left out, {reason}")


def _threshold(fit: QuestionFit) -> str:
    if (found := fit.threshold) is None:
        return ""
    return (
        f"{found.score:.4f}: at most {found.max_risk:.1%} wrong with {found.confidence:.0%} "
        f"confidence; {found.coverage:.1%} of {found.num_labels} answered, {found.risk:.1%} wrong"
    )


def _sets(fit: QuestionFit) -> str:
    found = fit.sets
    return "" if found is None else f"{found.coverage:.0%}: from {found.least:.4f}"
