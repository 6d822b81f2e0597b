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

from dise_core.arrays import Floats
from dise_core.errors import InputError, shown
from dise_core.params.base import input_error
from dise_core.records import Fields
from dise_decide.calibration import DecisionCalibration, KeptParams, QuestionFit
from dise_decide.outputs import Answer
from dise_decide.questions import AnyQuestion
from dise_eval.calibration import label_rows, sentences
from dise_eval.calibration.decisions import LEAST_OF_TYPE, fitted, joined
from dise_eval.calibration.fitting import LEAST_OF_FIELD, Labels
from dise_eval.calibration.making import Promises, Result, fit_each

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


def calibrate(path: Path, options: Fields, promises: Promises) -> Result:
    """Return the calibration of labelled lines of `dise decide --output`."""
    for name in ("method", "held_out", "selector"):
        if options[name]:
            raise InputError(f"--decisions takes no --{name.replace('_', '-')}", name)
    lines = _lines(path)
    first = next(lines)
    answers = labelled(itertools.chain([first], lines))
    groups: dict[str, list[Labelled]] = {}
    for kind in ("name", "type"):
        for answer in answers:
            groups.setdefault(f"{kind} {getattr(answer[0], kind)}", []).append(answer)

    def fit(key: str, group: list[Labelled]) -> tuple[QuestionFit, Labels]:
        questions = [question for question, *_ in group]
        if len({question.type for question in questions}) > 1:
            raise InputError("its labels are of several types: name them apart")
        least = LEAST_OF_FIELD if key.startswith("name ") else LEAST_OF_TYPE
        return fitted(labels_of(group), questions, least, promises)

    fits, left_out = fit_each(groups, fit)
    of_kind: dict[str, dict[str, QuestionFit]] = {"name": {}, "type": {}}
    for key, (made, _) in fits.items():
        kind, _, name = key.partition(" ")
        of_kind[kind][name] = made
    calibration = DecisionCalibration(
        model=first.model,
        fingerprint=first.tokenizer,
        source=path.name,
        params=first.params,
        chat=first.chat,
        names=of_kind["name"],
        types=of_kind["type"],
    )
    column = "name" if of_kind["name"] else "type"
    held_out = joined([labels for key, (_, labels) in fits.items() if key.startswith(column)])
    texts = {key: _text(made) for key, (made, _) in fits.items()}
    printed = sentences.of_groups(texts, left_out)
    return Result(calibration, {"left_out": left_out}, printed, (held_out.scores, held_out, None))


def _text(fit: QuestionFit) -> str:
    method, sets = fit.map.method if fit.map else "no map", fit.sets
    return (
        f"{fit.num_labels} labels of {fit.num_inputs} inputs, ECE {fit.before.ece:.4f}; {method}, "
        f"on inputs left out of the fit: {sentences.of_figures(fit.after)}"
        f"{sentences.of_threshold(fit.threshold)}"
        f"{f'; answer sets of {sets.coverage:.0%}: from {sets.least:.4f}' if sets else ''}"
    )


def _lines(path: Path) -> Iterator[DecidedLine]:
    """Yield the lines that have labels, one at a time: each takes kilobytes. Raises
    InputError for none, and for one of another model or way of asking.
    """
    origin = None
    for number, record in label_rows.records(path):
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


def labels_of(group: list[Labelled]) -> Labels:
    """Return the answers as `fitted` takes them."""
    shape = len(group), max(len(shares) for _, shares, *_ in group)
    labels = Labels(np.zeros(shape), np.zeros(shape, np.bool_), np.array([n for *_, n in group]))
    for place, (_, shares, truth, _) in enumerate(group):
        labels.scores[place, : len(shares)] = shares
        labels.is_right[place, truth] = True
    return labels
