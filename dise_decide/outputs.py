"""Answers to typed questions: probabilities of their labels, and how much of the model's
probability the labels hold at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from dise_core.front.outputs import Usage
from dise_core.records import Record
from dise_decide.params import ConfidenceName, ReadingName

LOW_MASS = 0.1
"""A label mass below this is told as a warning."""


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Diagnostics(_Frozen):
    """What stands behind an answer's probabilities.

    label_mass: the probability that the slot's first token is the first of a label, all labels
    together; where it is low, the probabilities compare answers that the model would not give.
    argmax_is_label: whether the likeliest first token is one of them. logprobs: of each option, the
    mean log-probability of the tokens of the label for it, in nats; None stands for -inf. passes:
    the texts that were read for it; label_mass and logprobs are means over them, argmax_is_label
    holds for all. confidence: what the answer's confidence is.
    """

    label_mass: float
    argmax_is_label: bool
    logprobs: tuple[float | None, ...]
    reading: ReadingName
    passes: int
    confidence: ConfidenceName

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
            case "above-chance":
                return (size * top - 1) / (size - 1)


class PredicateAnswer(_Frozen):
    """The probability of yes."""

    type: Literal["predicate"] = "predicate"
    name: str | None
    probability: float
    diagnostics: Diagnostics


class ChoiceProbability(_Frozen):
    """A choice's value and its probability."""

    value: StrictStr | StrictBool
    probability: float


class ChoiceAnswer(_Frozen):
    """The likeliest choice, and its confidence: see DecisionParams."""

    type: Literal["choice"] = "choice"
    name: str | None
    choice: StrictStr | StrictBool
    confidence: float
    probabilities: tuple[ChoiceProbability, ...]
    diagnostics: Diagnostics


class LevelProbability(_Frozen):
    """A level, counted from 0, with its label and its probability."""

    value: int
    label: str
    probability: float


class ScoreAnswer(_Frozen):
    """The mean level, and its confidence: see DecisionParams."""

    type: Literal["score"] = "score"
    name: str | None
    score: float
    confidence: float
    probabilities: tuple[LevelProbability, ...]
    diagnostics: Diagnostics


Answer = Annotated[PredicateAnswer | ChoiceAnswer | ScoreAnswer, Field(discriminator="type")]


@dataclass(frozen=True, slots=True, eq=False)
class DecisionOutput:
    """The answers to the questions about one input, in their order. is_joint: whether they were
    asked in one text. usage: its completion tokens are those of the slots. warnings: a label mass
    below LOW_MASS, and questions that were to share a text and could not; a sentence each.
    """

    model: str
    answers: tuple[PredicateAnswer | ChoiceAnswer | ScoreAnswer, ...]
    is_joint: bool
    usage: Usage
    warnings: tuple[str, ...] = ()

    def timed(self, seconds: float) -> Self:
        """Return it with the seconds that its plan took."""
        return replace(self, usage=replace(self.usage, seconds=seconds))

    def to_dict(self) -> Record:
        """Return the JSON form that the command prints."""
        return {
            "model": self.model,
            "answers": [answer.model_dump(mode="json") for answer in self.answers],
            "is_joint": self.is_joint,
            "warnings": list(self.warnings),
            "usage": {
                "prompt_tokens": self.usage.prompt_tokens,
                "completion_tokens": self.usage.completion_tokens,
                "nfe": self.usage.nfe,
                "seconds": round(self.usage.seconds, 4),
            },
        }


def low_masses(answers: Sequence[PredicateAnswer | ChoiceAnswer | ScoreAnswer]) -> list[str]:
    """Return a warning for each answer whose label mass is below LOW_MASS."""
    return [
        f"question {answer.name or number}: the model gives its answers a probability of only "
        f"{answer.diagnostics.label_mass:.2g} in all, so how they compare tells little"
        for number, answer in enumerate(answers, 1)
        if answer.diagnostics.label_mass < LOW_MASS
    ]
