"""Answers to typed questions: probabilities of their labels, and how much of the model's
probability the labels hold at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    StrictInt,
    StrictStr,
    model_serializer,
)

from dise_core.front.outputs import Usage
from dise_core.records import JsonFields, Record
from dise_decide.params import ConfidenceName, ReadingName

LOW_MASS = 0.1
"""A label mass below this makes a warning."""


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Diagnostics(_Frozen):
    """What stands behind an answer's probabilities.

    label_mass: the probability that the slot's first token is the first of a label, all
    labels together; where it is low, the probabilities compare answers that the model
    would not give.
    argmax_is_label: whether the likeliest first token is one of them. logprobs: of each
    option, the mean log-probability of the tokens of the label for it, in nats; None
    stands for -inf. passes: the texts that were read for it; label_mass and logprobs are
    means over them, argmax_is_label holds for all. confidence: what the answer's
    confidence is. calibration: the digest of the file that the answer was calibrated
    with.
    """

    label_mass: float
    argmax_is_label: bool
    logprobs: tuple[float | None, ...]
    reading: ReadingName
    passes: int
    confidence: ConfidenceName | Literal["calibrated"]
    calibration: str | None = None

    def confidence_in(self, probabilities: Sequence[float]) -> float:
        """Return the confidence of an answer with these probabilities of its options."""
        size = len(probabilities)
        second, top = sorted(probabilities)[-2:]
        match self.confidence:
            case "label-mass":
                return top * self.label_mass
            case "top":
                return top
            case "margin":
                return top - second
            case "entropy":
                return 1 + sum(p * math.log(p) for p in probabilities if p > 0) / math.log(size)
            case _:
                return (size * top - 1) / (size - 1)


class AnswerSet(_Frozen):
    """The answers that are probable enough: choices, levels, or for a predicate True and
    False. On average a share `coverage` of such sets hold the truth. n: the labels behind
    that.
    """

    values: tuple[StrictBool | StrictInt | StrictStr, ...]
    coverage: float
    n: int


class Finding(NamedTuple):
    """What is found of a question's options. shares: the probability of each, in order;
    confidence: in the likeliest; details: what an answer repeats as it is.
    """

    shares: Sequence[float]
    confidence: float
    diagnostics: Diagnostics
    abstained: bool | None = None
    answer_set: AnswerSet | None = None

    @property
    def details(self) -> Record:
        return {name: getattr(self, name) for name in ("diagnostics", "abstained", "answer_set")}


class _Answer(_Frozen):
    """name: the question's. abstained: whether it is too doubtful to act on, None without
    a rule.
    answer_set: None without a calibration that has them. Their JSON leaves these two out
    if None.
    """

    name: str | None
    diagnostics: Diagnostics
    abstained: bool | None = None
    answer_set: AnswerSet | None = None

    @model_serializer(mode="wrap")
    def _without_none(self, dump: SerializerFunctionWrapHandler) -> Record:
        record: Record = dump(self)
        return {key: it for key, it in record.items() if it is not None or key == "name"}


class PredicateAnswer(_Answer):
    """The probability of yes."""

    type: Literal["predicate"] = "predicate"
    probability: float

    @property
    def shares(self) -> list[float]:
        """The probabilities of the question's options, in their order."""
        return [self.probability, 1 - self.probability]


class _Share(_Frozen):
    probability: float


class ChoiceProbability(_Share):
    """A choice's value and its probability."""

    value: StrictStr | StrictBool


class LevelProbability(_Share):
    """A level, counted from 0, with its label and its probability."""

    value: int
    label: str


class _Chosen(_Answer):
    confidence: float
    probabilities: tuple[_Share, ...]

    @property
    def shares(self) -> list[float]:
        """The probabilities of the question's options, in their order."""
        return [share.probability for share in self.probabilities]


class ChoiceAnswer(_Chosen):
    """The likeliest choice, and its confidence: see DecisionParams."""

    type: Literal["choice"] = "choice"
    choice: StrictStr | StrictBool
    probabilities: tuple[ChoiceProbability, ...]


class ScoreAnswer(_Chosen):
    """The mean level, and its confidence: see DecisionParams."""

    type: Literal["score"] = "score"
    score: float
    probabilities: tuple[LevelProbability, ...]


Answer = Annotated[PredicateAnswer | ChoiceAnswer | ScoreAnswer, Field(discriminator="type")]


@dataclass(frozen=True, slots=True, eq=False)
class DecisionOutput:
    """The answers to the questions about one input, in their order. is_joint: whether
    they were asked in one text. usage: its completion tokens are those of the slots.
    warnings: a label mass below LOW_MASS, an empty answer set, and questions that were to
    share a text and could not; a sentence each. asked: of a line of a file, its questions
    and how they were asked.
    """

    model: str
    answers: tuple[Answer, ...]
    is_joint: bool
    usage: Usage
    warnings: tuple[str, ...] = ()
    asked: JsonFields = field(default_factory=dict)

    def timed(self, seconds: float) -> Self:
        """Return it with the seconds that its plan took."""
        return replace(self, usage=replace(self.usage, seconds=seconds))

    def to_dict(self) -> Record:
        """Return the JSON form that the command prints."""
        return {
            **self.asked,
            "model": self.model,
            "answers": [answer.model_dump(mode="json") for answer in self.answers],
            "is_joint": self.is_joint,
            "warnings": list(self.warnings),
            "usage": {**asdict(self.usage), "seconds": round(self.usage.seconds, 4)},
        }


def doubts(answers: Sequence[Answer]) -> Iterator[str]:
    """Yield a warning for each low label mass, and for each empty answer set."""
    for number, answer in enumerate(answers, 1):
        name, members = f"question {answer.name or number}", answer.answer_set
        mass = answer.diagnostics.label_mass
        if mass < LOW_MASS:
            yield (
                f"{name}: the model gives its answers a probability of only {mass:.2g} in all, so "
                "how they compare tells little"
            )
        if members is not None and not members.values:
            yield f"{name}: no answer is probable enough for the answer set"
