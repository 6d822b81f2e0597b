"""Fits calibrations of decisions to labelled answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from dise_core.arrays import Floats
from dise_core.errors import InputError, shown
from dise_core.params.base import input_error
from dise_core.records import JsonFields
from dise_core.scoring.calibration import Threshold
from dise_decide.calibration import (
    Coverage,
    DecisionCalibration,
    QuestionFit,
    Tails,
    Temperature,
    log_odds,
    mapped,
    nameless,
    shares_of,
)
from dise_decide.outputs import Answer
from dise_decide.params import DecisionParams
from dise_decide.questions import AnyQuestion
from dise_eval.calibration import fitting, guarantee
from dise_eval.calibration.fitting import ENOUGH_FOR_ISOTONIC, LEAST_OF_FIELD, Labels, Method
from dise_eval.calibration.guarantee import Promise, Rule

LEAST_OF_TYPE = 100
"""Labels of a type of questions; a name needs LEAST_OF_FIELD. A temperature needs as many."""

Map = Temperature | Tails | None


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """An answered question with its truth. shares: the model's own, float64 [K]; truth: the right
    option's index; input: the number of the input.
    """

    question: AnyQuestion
    shares: Floats
    truth: int
    input: int

    def is_reached(self) -> Floats:
        """Return whether the truth is option k or a later one, k = 1 to K - 1, as 0 and 1."""
        return (np.arange(1, len(self.shares)) <= self.truth).astype(np.float64)

    def event(self, map_: Map) -> tuple[float, bool]:
        """Return the probability of what figures are about, and whether it is so: of a predicate
        that it is yes, else that the likeliest answer is right.
        """
        shares, confidence = mapped(map_, self.shares)
        if self.question.type == "predicate":
            return float(shares[0]), self.truth == 0
        return confidence, self.is_right(map_)

    def is_right(self, map_: Map) -> bool:
        return int(mapped(map_, self.shares)[0].argmax()) == self.truth

    def loss(self, map_: Map) -> float:
        """Return the squared error of a choice's confidence, and of each P(level >= k)."""
        if self.question.type == "choice":
            return float((mapped(map_, self.shares)[1] - self.is_right(map_)) ** 2)
        tails = np.cumsum(mapped(map_, self.shares)[0][:0:-1])[::-1]
        return float(((tails - self.is_reached()) ** 2).sum())


@checked
class Line:
    """A line of `dise decide --output`, with labels: by the questions' names, or in their order."""

    input: JsonValue
    model: str
    tokenizer: str
    params: DecisionParams
    is_joint: bool
    questions: list[AnyQuestion]
    answers: list[Answer]
    labels: dict[str, JsonValue] | list[JsonValue]

    def labelled(self) -> Iterator[tuple[AnyQuestion, Answer, JsonValue]]:
        """Yield the questions that have a label. Raises InputError for labels that fit none."""
        if isinstance(self.labels, dict):
            names = [question.name for question in self.questions]
            if unknown := self.labels.keys() - set(names):
                raise InputError(f"no question is named {min(unknown)!r:.80}", "labels")
            labels = [self.labels.get(name or "") for name in names]
        else:
            labels = self.labels
        if not len(self.questions) == len(self.answers) == len(labels):
            raise InputError("questions, answers and labels are not as many", "labels")
        triples = zip(self.questions, self.answers, labels, strict=True)
        yield from (triple for triple in triples if triple[2] is not None)


_LINE = TypeAdapter(Line)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a calibration is to promise: a risk by a rule, and a coverage of answer sets."""

    promise: Promise | None
    rule: Rule
    coverage: float | None


def line_of(number: int, record: JsonFields) -> Line | None:
    """Return a line; None for one without labels. Raises InputError for what is none."""
    if "labels" not in record:
        return None
    try:
        line = _LINE.validate_python(record)
    except ValidationError as error:
        raise input_error(error, f"line {number}") from error
    if line.params.joint and not line.is_joint:
        raise InputError(f"line {number}: its questions did not share a text; leave it out")
    if any(answer.diagnostics.calibration for answer in line.answers):
        raise InputError(f"line {number} is calibrated already; decide it without --calibration")
    return line


def decided(line: Line, number: int) -> Iterator[Decided]:
    """Yield the labelled questions of a line. number: of its input."""
    for question, answer, label in line.labelled():
        values = [(type(value), value) for value in question.values]
        known: list[tuple[type, object]] = [*values, *((str, text) for text in question.labels)]
        if (type(label), label) not in known:
            listed = ", ".join(repr(value) for _, value in values[:5])
            raise InputError(f"its label {shown(label)} is none of {listed}", "labels")
        truth = known.index((type(label), label)) % len(values)
        yield Decided(question, np.array(shares_of(answer)), truth, number)


def calibration(
    lines: Mapping[int, Line], asked: Asked, source: str
) -> tuple[DecisionCalibration, dict[str, str], list[tuple[float, bool, int]]]:
    """Return the calibration of lines by number, why groups of labels have none, and of each label
    the held-out probability, the event and the input. Raises InputError if no group has one.
    """
    facts = {(line.model, line.tokenizer, line.params) for line in lines.values()}
    if len(facts) != 1:
        raise InputError("the lines are of several models, or asked in several ways", "scored")
    [(model, tokenizer, params)] = facts
    inputs = dict[str, int]()
    rows = list[Decided]()
    for number, line in lines.items():
        place = inputs.setdefault(repr(line.input), len(inputs))
        try:
            rows += decided(line, place)
        except InputError as error:
            raise InputError(f"line {number}: {error}", "scored") from error
    made: dict[str, dict[str, QuestionFit]] = {"name": {}, "type": {}}
    left_out, held_out = dict[str, str](), list[tuple[float, bool, int]]()
    for kind, least in (("name", LEAST_OF_FIELD), ("type", LEAST_OF_TYPE)):
        groups = dict[str, list[Decided]]()
        for row in rows:
            groups.setdefault(getattr(row.question, kind) or "", []).append(row)
        for name in filter(None, groups):
            try:
                made[kind][name], events = fitted(groups[name], least, asked)
                held_out += events if kind == "name" or not made["name"] else []
            except InputError as error:
                left_out[f"{kind} {name}"] = str(error)
    if not made["name"] and not made["type"]:
        raise InputError("; ".join(f"{name}: {why}" for name, why in left_out.items()), "scored")
    file = DecisionCalibration(
        model=model,
        fingerprint=tokenizer,
        source=source,
        params=params,
        names=made["name"],
        types=made["type"],
    )
    return file, left_out, held_out


def fitted(
    rows: Sequence[Decided], least: int, asked: Asked
) -> tuple[QuestionFit, list[tuple[float, bool, int]]]:
    """Return the fit, by the map that does best on inputs left out, and each label's event there.
    A promise is made on half of the inputs, and the map fitted on the others.

    Raises InputError for fewer labels than `least`, and for what cannot be promised.
    """
    before = _events(rows, [None] * len(rows))
    before.check(least)
    places = Labels(np.arange(float(len(rows))), before.is_right, before.questions)
    halves = places.split(0.5) if asked.promise or asked.coverage else (places, places)
    mine, kept = ([rows[int(place)] for place in half.scores] for half in halves)
    best, maps = _chosen(mine)
    after = _events(mine, maps)
    questions = {nameless(row.question).model_dump_json(): row.question for row in rows}
    map_ = best(mine)
    fit = QuestionFit(
        question=nameless(rows[0].question) if len(questions) == 1 else None,
        map=map_,
        num_labels=len(mine),
        num_inputs=after.num_questions,
        before=fitting.figures((own := _events(mine, [None] * len(mine))).scores, own),
        after=fitting.figures(after.scores, after),
        threshold=gate(kept, map_, asked),
        sets=answer_sets(kept, map_, asked.coverage),
    )
    told = zip(
        after.scores.tolist(), after.is_right.tolist(), after.questions.tolist(), strict=True
    )
    return fit, [*told]


def _events(rows: Sequence[Decided], maps: Sequence[Map]) -> Labels:
    events = [row.event(map_) for row, map_ in zip(rows, maps, strict=True)]
    values, is_so = zip(*events, strict=True)
    return Labels(np.array(values), np.array(is_so), np.array([row.input for row in rows]))


def _one_each(rows: Sequence[Decided]) -> list[Decided]:
    """Return one question of each input, drawn with the seed 0: a promise needs labels that do not
    depend on each other.
    """
    order = np.random.default_rng(0).permutation(len(rows))
    return list({rows[place].input: rows[place] for place in order.tolist()}.values())


def gate(rows: Sequence[Decided], map_: Map, asked: Asked) -> Threshold | None:
    if asked.promise is None:
        return None
    rows = _one_each(rows)
    confidences = np.array([mapped(map_, row.shares)[1] for row in rows])
    right = np.array([row.is_right(map_) for row in rows])
    labels = Labels(confidences, right, np.arange(len(rows)))
    return guarantee.threshold_of(asked.rule, labels, asked.promise)


def answer_sets(rows: Sequence[Decided], map_: Map, coverage: float | None) -> Coverage | None:
    """Return what split conformal prediction takes: with the score 1 - p(truth) of n labels, its
    ceil((n + 1) coverage)-th smallest. Raises InputError where n is smaller.
    """
    if coverage is None:
        return None
    rows = _one_each(rows)
    truths = np.sort([mapped(map_, row.shares)[0][row.truth] for row in rows])
    rank = int(np.ceil((len(rows) + 1) * coverage - 1e-9))
    if rank > len(rows):
        raise InputError(
            f"a coverage of {coverage:g} needs labels of {np.ceil(coverage / (1 - coverage)):.0f} "
            f"inputs beside those of the map, not of {len(rows)}",
            "coverage",
        )
    least = float(np.clip(truths[len(rows) - rank], 0, 1))
    return Coverage(coverage=coverage, num_labels=len(rows), least=least)


def _chosen(rows: Sequence[Decided]) -> tuple[Callable[[Sequence[Decided]], Map], list[Map]]:
    """Return what makes the best map, and for each label that of the other folds. Inputs are dealt
    to folds; the first of equally good ones wins, which leaves probabilities as they are.
    """
    from sklearn.model_selection import GroupKFold

    inputs = [row.input for row in rows]
    splits = [
        *GroupKFold(fitting.NUM_FOLDS, shuffle=True, random_state=0).split(rows, None, inputs)
    ]
    tried = list[tuple[float, Callable[[Sequence[Decided]], Map], list[Map]]]()
    for make in _makers(rows):
        maps: list[Map] = [None] * len(rows)
        try:
            for rest, here in splits:
                map_ = make([rows[place] for place in rest])
                for place in here:
                    maps[place] = map_
            make(rows)
        except InputError:  # nothing rises: the map is no candidate
            continue
        loss = sum(row.loss(map_) for row, map_ in zip(rows, maps, strict=True))
        tried.append((loss, make, maps))
    _, best, maps = min(tried, key=lambda one: one[0])
    return best, maps


def _makers(rows: Sequence[Decided]) -> Iterator[Callable[[Sequence[Decided]], Map]]:
    yield lambda _: None
    is_much = len(rows) >= ENOUGH_FOR_ISOTONIC
    if rows[0].question.type == "choice":
        if len(rows) >= LEAST_OF_TYPE:
            yield partial(temperature, has_top=False)
        if is_much:
            yield partial(temperature, has_top=True)
    else:
        yield partial(tails, "platt")
        if is_much:
            yield partial(tails, "isotonic")


def temperature(rows: Sequence[Decided], has_top: bool) -> Temperature:
    """Return the temperature of least negative log-likelihood, between e^-5 and e^5."""
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    logs = np.full((len(rows), max(len(row.shares) for row in rows)), -np.inf)
    for log, row in zip(logs, rows, strict=True):
        log[: len(row.shares)] = np.log(np.maximum(row.shares, np.finfo(np.float64).tiny))
    truths = np.array([row.truth for row in rows])[:, None]

    def loss(log_temperature: float) -> float:
        fits = log_softmax(logs / np.exp(log_temperature), axis=1)
        return -float(np.take_along_axis(fits, truths, 1).mean())

    found = Temperature(temperature=float(np.exp(minimize_scalar(loss, bounds=(-5, 5)).x)))
    if not has_top:
        return found
    return found.model_copy(update={"top": fitting.isotonic(_events(rows, [found] * len(rows)))})


def tails(method: Method, rows: Sequence[Decided]) -> Tails:
    """Return the maps of each P(level >= k). Raises InputError where one does not rise, and for
    several numbers of levels.
    """
    sizes = {len(row.shares) for row in rows}
    if len(sizes) > 1:
        raise InputError(f"the questions have {' or '.join(map(str, sorted(sizes)))} levels")
    odds = np.array([log_odds(row.shares) for row in rows])
    reached = np.array([row.is_reached() for row in rows], np.bool_)
    inputs = np.array([row.input for row in rows])
    fit = fitting.FITS[method]
    maps = (fit(Labels(*pair, inputs)) for pair in zip(odds.T, reached.T, strict=True))
    return Tails(method=method, tails=tuple(maps))
