"""dise calibrate --decisions: from labelled decisions to a calibration."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import numpy as np
from pydantic import BaseModel, JsonValue, ValidationError, model_validator
from rich.console import Console
from rich.table import Table

from dise_app.files.texts import write_json
from dise_core.arrays import Floats
from dise_core.errors import InputError, shown
from dise_core.params.base import input_error
from dise_core.records import Fields
from dise_decide.calibration import DecisionCalibration, KeptParams, QuestionFit
from dise_decide.outputs import Answer
from dise_decide.questions import AnyQuestion
from dise_eval.calibration import rows
from dise_eval.calibration.decisions import LEAST_OF_TYPE, Promises, fitted, joined
from dise_eval.calibration.fitting import LEAST_OF_FIELD, Labels
from dise_eval.calibration.guarantee import Promise
from dise_eval.reports import reliability

Labelled = tuple[AnyQuestion, Floats, int, int]
"""A question, its options' probabilities, the right place, the input's number."""


class DecidedLine(BaseModel):
    """A line of `dise decide --output`. labels: the truths, by the questions' names."""

    input: JsonValue
    model: str
    tokenizer: str
    params: KeptParams
    chat: bool
    questions: list[AnyQuestion]
    answers: list[Answer]
    labels: dict[str, JsonValue]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        names = {question.name for question in self.questions}
        if unknown := self.labels.keys() - names:
            raise ValueError(f"no question is named {min(unknown)!r:.80}")
        if len(self.questions) != len(self.answers):
            raise ValueError("questions and answers do not pair up")
        if self.params.joint:
            raise ValueError("an answer depends on the other questions: decide without --joint")
        for question, answer in zip(self.questions, self.answers, strict=True):
            shares = np.array(answer.shares)
            is_of_it = (answer.type, len(shares)) == (question.type, len(question.options))
            if not is_of_it or not (shares >= 0).all() or not np.isclose(shares.sum(), 1):
                raise ValueError(f"the answer to {question.name!r:.80} was not written by dise")
        if any(answer.diagnostics.calibration for answer in self.answers):
            raise ValueError("it is calibrated already: decide it without --calibration")
        for question in self.questions:
            if question.name in self.labels:
                self.truth(question)
        return self

    def truth(self, question: AnyQuestion) -> int:
        """Return the right option's place. Raises ValueError for no option's label."""
        label = self.labels[question.name or ""]
        options = [*enumerate(question.values), *enumerate(question.labels)]
        for place, value in options:
            if (type(value), value) == (type(label), label):
                return place
        allowed = shown([*question.values], 80)
        raise ValueError(f"the label {shown(label, 40)} is not one of {allowed}")


def calibrate(path: Path, output: Path, options: Fields, as_json: bool) -> None:
    """Fit labelled lines of `dise decide --output`, and write the calibration."""
    for name in ("method", "held_out", "selector"):
        if options[name]:
            raise InputError(f"--decisions takes no --{name.replace('_', '-')}", name)
    risk = options["max_risk"] and Promise(options["max_risk"], options["risk_confidence"])
    promises = Promises(risk, options["rule"], options["coverage"])
    lines = _lines(path)
    first = next(lines)
    answers = labelled(itertools.chain([first], lines))
    calibration, left_out, held_out = _fit(first, answers, promises, path.name)
    picture = output.with_suffix(".png")
    reliability.picture(held_out.scores, held_out, None, picture)
    write_json(output, calibration.to_dict())
    if as_json:
        record = {"calibration": calibration.to_dict(), "left_out": left_out}
        print(json.dumps(record, ensure_ascii=False, allow_nan=False))
        return
    _show(calibration)
    print("".join(f"{name}: left out, {why}\n" for name, why in left_out.items()), end="")
    print(f"written: {output}, {picture}")


def _lines(path: Path) -> Iterator[DecidedLine]:
    """Yield the lines that have labels, one at a time: each takes kilobytes. Raises
    InputError for none, and for one of another model or way of asking.
    """
    origin = None
    for number, record in rows.records(path):
        if record.get("labels", {}) == {}:
            continue
        try:
            line = DecidedLine.model_validate(record)
        except ValidationError as error:
            raise input_error(error, f"line {number}") from error
        facts = (line.model, line.tokenizer, line.params, line.chat)
        origin = origin or facts
        if facts != origin:
            raise InputError(
                "The lines with labels are of several models, or asked in several ways.", "scored"
            )
        yield line
    if origin is None:
        raise InputError(
            f"no line of {path} has a label: give lines of `dise decide --output` the right "
            'answers by the questions\' names, as "labels": {"reaches": true}',
            "scored",
        )


def labelled(lines: Iterable[DecidedLine]) -> list[Labelled]:
    """Return each labelled answer. Lines of equal inputs share a number. Of questions of
    one name, type and size two are kept, the others stand as the second: a fit asks only
    whether all are one.
    """
    inputs, groups = dict[bytes, int](), dict[tuple[str | None, str, int], list[AnyQuestion]]()
    answers = list[Labelled]()
    for line in lines:
        key = hashlib.sha256(json.dumps(line.input, sort_keys=True).encode()).digest()
        number = inputs.setdefault(key, len(inputs))
        for question, answer in zip(line.questions, line.answers, strict=True):
            if question.name in line.labels:
                size = len(question.options)
                group = groups.setdefault((question.name, question.type, size), [question])
                if question != group[0] and len(group) == 1:
                    group.append(question)
                member = group[0] if question == group[0] else group[1]
                answers.append((member, np.array(answer.shares), line.truth(question), number))
    return answers


def _fit(
    first: DecidedLine, answers: list[Labelled], promises: Promises, source: str
) -> tuple[DecisionCalibration, dict[str, str], Labels]:
    """Return the calibration, why groups have no fit, and what holds for the others'
    held-out labels, of names if some have a fit. Raises InputError if no group has one.
    """
    fits: dict[str, dict[str, QuestionFit]] = {"name": {}, "type": {}}
    left_out, held_out = dict[str, str](), list[Labels]()
    for kind, min_labels in (("name", LEAST_OF_FIELD), ("type", LEAST_OF_TYPE)):
        for name in dict.fromkeys(getattr(question, kind) for question, *_ in answers):
            group = [answer for answer in answers if getattr(answer[0], kind) == name]
            questions = [question for question, *_ in group]
            try:
                if len({question.type for question in questions}) > 1:
                    raise InputError("its labels are of several types: name them apart")
                fit, labels = fitted(labels_of(group), questions, min_labels, promises)
            except InputError as error:
                left_out[f"{kind} {name}"] = str(error)
                continue
            fits[kind][name] = fit
            held_out += [labels] if kind == "name" or not fits["name"] else []
    if not held_out:
        raise InputError("; ".join(f"{name}: {why}" for name, why in left_out.items()), "scored")
    file = DecisionCalibration(
        model=first.model,
        fingerprint=first.tokenizer,
        source=source,
        params=first.params,
        chat=first.chat,
        names=fits["name"],
        types=fits["type"],
    )
    return file, left_out, joined(held_out)


def labels_of(group: list[Labelled]) -> Labels:
    """Return the answers as `fitted` takes them."""
    shape = len(group), max(len(shares) for _, shares, *_ in group)
    labels = Labels(np.zeros(shape), np.zeros(shape, np.bool_), np.array([n for *_, n in group]))
    for place, (_, shares, truth, _) in enumerate(group):
        labels.scores[place, : len(shares)] = shares
        labels.is_right[place, truth] = True
    return labels


def _show(calibration: DecisionCalibration) -> None:
    table = Table("question", "labels", "map", "ECE", "calibrated", "threshold", "answer sets")
    fits = {f"name {name}": fit for name, fit in calibration.names.items()}
    fits |= {f"type {name}": fit for name, fit in calibration.types.items()}
    for name, fit in fits.items():
        gate, sets = fit.threshold, fit.sets
        table.add_row(
            name,
            f"{fit.num_labels}",
            "none" if fit.map is None else fit.map.method,
            f"{fit.before.ece:.4f}",
            f"{fit.after.ece:.4f}",
            f"{gate.score:.4f}: {gate.coverage:.1%} kept, {gate.risk:.1%} wrong" if gate else "",
            f"{sets.coverage:.0%}: from {sets.least:.4f}" if sets else "",
        )
    Console(highlight=False, emoji=False).print(table, markup=False)
