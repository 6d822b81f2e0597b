"""A calibration of decisions: probabilities of being right, thresholds, answer sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self, TypeVar

import numpy as np
from pydantic import BeforeValidator, FailFast, Field, model_validator

from dise_core.arrays import Floats
from dise_core.scoring.calibration import (
    CalibrationFile,
    CalibrationPart,
    Count,
    Fact,
    Figures,
    Isotonic,
    Platt,
    Probability,
    Text,
    Threshold,
    refuse_other,
)
from dise_decide.outputs import AnswerSet, Finding
from dise_decide.params import DecisionParams
from dise_decide.questions import MAX_LEVELS, AnyQuestion, Question, ScoreQuestion

Q = TypeVar("Q", bound=Question)

LEAVE_OUT = "Leave it out: it is then as it was."
FIT_AGAIN = "Label such answers, and fit them with dise calibrate --decisions."

MAX_ODDS = 50.0
"""Log-odds are clipped to ± this."""


class Temperature(CalibrationPart):
    """Of choices: softmax(log p / temperature). top: from the likeliest one's probability
    to that of being right; the shares stay as they are.
    """

    method: Literal["temperature"] = "temperature"
    temperature: float = Field(gt=0)
    top: Isotonic | None = None

    def of(self, shares: Floats) -> Floats:
        powers = (shares / shares.max(axis=1, keepdims=True)) ** (1 / self.temperature)
        scaled: Floats = powers / powers.sum(axis=1, keepdims=True)
        return scaled


class Tails(CalibrationPart):
    """Of levels, of which a predicate has two, yes and no: a map of each P(level >= k), k
    = 1 to K - 1, by its log-odds, then made non-increasing.
    """

    method: Literal["platt", "isotonic"]
    tails: Annotated[
        tuple[Annotated[Isotonic | Platt, Field(discriminator="method")], ...], FailFast()
    ] = Field(min_length=1, max_length=MAX_LEVELS - 1)

    def of(self, shares: Floats) -> Floats:
        maps = zip(self.tails, log_odds(shares).T, strict=True)
        tails = np.minimum.accumulate([tail.of(odds) for tail, odds in maps])
        edge = np.ones((1, len(shares)))
        return -np.diff(np.concatenate([edge, tails, 0 * edge]), axis=0).T


ShareMap = Annotated[Temperature | Tails, Field(discriminator="method")]


def tails_of(shares: Floats) -> Floats:
    """Return each P(level >= k), k = 1 to K - 1, [n, K - 1], of shares [n, K]."""
    tails: Floats = np.cumsum(shares[:, :0:-1], axis=1)[:, ::-1]
    return tails


def log_odds(shares: Floats) -> Floats:
    """Return the log-odds of each P(level >= k), within MAX_ODDS."""
    with np.errstate(divide="ignore"):
        odds: Floats = np.log(tails_of(shares)) - np.log(np.cumsum(shares[:, :-1], axis=1))
    return np.clip(odds, -MAX_ODDS, MAX_ODDS)


class Coverage(CalibrationPart):
    """What keeps the promise that on average a share `coverage` of the answer sets holds
    the truth: the least probability of a member. num_labels: labels that it was chosen
    on, one of each input.
    """

    coverage: Probability
    num_labels: Count
    least: Probability


class QuestionFit(CalibrationPart):
    """What was fitted on the labels of a question, or of all questions of a type.

    question: without its name; None where several were asked. map: None leaves the
    probabilities as they are. num_labels, num_inputs: that the map was fitted on. before,
    after: of the confidence that an answer is right, of predicates of yes, without the
    map and by maps fitted on others'.
    """

    type: Literal["predicate", "choice", "score"]
    question: AnyQuestion | None
    map: ShareMap | None
    num_labels: Count
    num_inputs: Count
    before: Figures
    after: Figures
    threshold: Threshold | None = None
    sets: Coverage | None = None

    @model_validator(mode="after")
    def _is_mapped(self) -> Self:
        if not isinstance(self.map, (Temperature if self.type == "choice" else Tails) | None):
            raise ValueError(f"the calibration's fit is not for a {self.type}")
        return self

    def facts(self, question: Question) -> Iterator[Fact]:
        """Yield what the labelled questions were, beside what this one is."""
        yield "type", [self.type], question.type
        if self.question is not None:
            its, asked = (
                one.model_dump_json(exclude_defaults=True)
                for one in (self.question, nameless(question))
            )
            yield "question", [its], asked
        if isinstance(self.map, Tails):
            yield "answers", [len(self.map.tails) + 1], len(question.options)

    def calibrated(self, question: Question, raw: Finding) -> Finding:
        """Return the model's own finding, calibrated."""
        [shares], [confidence] = mapped(self.map, np.array([raw.shares]))
        members = self._members(question, shares)
        is_below = None if self.threshold is None else bool(confidence < self.threshold.score)
        is_empty = members is not None and not members.values
        abstained = is_empty or is_below
        return Finding(shares.tolist(), float(confidence), raw.diagnostics, abstained, members)

    def _members(self, question: Question, shares: Floats) -> AnswerSet | None:
        if self.sets is None:
            return None
        places = np.flatnonzero(shares >= self.sets.least).tolist()
        if places and isinstance(question, ScoreQuestion):
            places = [*range(places[0], places[-1] + 1)]
        values = tuple(question.values[place] for place in places)
        return AnswerSet(values=values, coverage=self.sets.coverage, n=self.sets.num_labels)


def _without_orders(params: object) -> object:
    """Return params without the one order of options, which files up to 0.1.0 name."""
    if isinstance(params, Mapping) and params.get("orders") == 1:
        return {name: value for name, value in params.items() if name != "orders"}
    return params


KeptParams = Annotated[DecisionParams, BeforeValidator(_without_orders)]
"""The params of a file."""


class DecisionCalibration(CalibrationFile):
    """Maps from the probabilities of answers to typed questions to those of being right,
    with what they hold for. It is refused for another model, and for questions asked in
    another way.

    params, chat: how the questions were asked, and whether in the model's chat template.
    names, types: by the name of a question, else by its type.
    """

    version: Literal[1] = 1
    params: KeptParams
    chat: bool
    names: dict[Text, QuestionFit]
    types: dict[Text, QuestionFit]

    @model_validator(mode="after")
    def _asks_apart(self) -> Self:
        if self.params.joint:
            raise ValueError("what is asked in one text depends on the other questions there")
        return self

    def applied(self, params: DecisionParams) -> DecisionParams:
        """Return its own params. Raises InputError for params that set anything else; how
        an uncalibrated confidence is measured does not matter.
        """
        settings = params.model_dump(exclude_unset=True, exclude={"confidence"})
        for name, value in settings.items():
            refuse_other([(name, [getattr(self.params, name)], value)], name, LEAVE_OUT)
        return self.params

    def check_chat(self, chat: bool) -> None:
        """Raise InputError for inputs in another template than the labelled ones."""
        refuse_other([("chat", [self.chat], chat)], "chat", FIT_AGAIN)

    def fit_of(self, question: Question) -> QuestionFit:
        """Return the fit for a question of this name, else of its type. Raises InputError
        if there is none, or if it was made for another question; the error shows both.
        """
        fit = self.names.get(question.name or "") or self.types.get(question.type)
        choices = [*map(repr, self.names), *(f"any {name}" for name in self.types)]
        if fit is None:
            subject = f"a {question.type} named {question.name!r:.80}"
            refuse_other([("questions", choices, subject)], "questions", FIT_AGAIN)
        assert fit is not None, "else it was refused"
        refuse_other(fit.facts(question), "questions", FIT_AGAIN)
        return fit

    def calibrated(self, question: Question, raw: Finding) -> Finding:
        """Return the model's own finding on a question, calibrated."""
        origin = {"confidence": "calibrated", "calibration": self.digest}
        diagnostics = raw.diagnostics.model_copy(update=origin)
        return self.fit_of(question).calibrated(question, raw._replace(diagnostics=diagnostics))


def mapped(map_: Temperature | Tails | None, raw: Floats) -> tuple[Floats, Floats]:
    """Return calibrated shares, [n, K], and the probability of being right, [n]."""
    shares = raw if map_ is None else map_.of(raw)
    confidences: Floats = shares.max(axis=1)
    top = map_.top if isinstance(map_, Temperature) else None
    return shares, confidences if top is None else top.of(confidences)


def nameless(question: Q) -> Q:
    """Return the question without its name."""
    return question.model_copy(update={"name": None})
