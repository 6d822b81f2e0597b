"""Typed questions about an input: yes or no, a choice, a level of a scale."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import (
    BeforeValidator,
    FailFast,
    Field,
    StrictBool,
    StrictStr,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from dise_core.errors import InputError
from dise_core.params.base import Name, Params, input_error
from dise_decide.outputs import (
    Answer,
    ChoiceAnswer,
    ChoiceProbability,
    Finding,
    LevelProbability,
    PredicateAnswer,
    ScoreAnswer,
)

MAX_QUESTIONS = 400
"""Questions about one input, as OpenAI allows."""

MAX_CHOICES, MAX_LEVELS = 255, 10
"""Choices, or levels, of one question, as OpenAI and vLLM allow."""

NotBlank = StringConstraints(max_length=1000, pattern=r"\S")


class Option(Params):
    """One possible answer: what the model writes for it, and when it applies."""

    label: Annotated[str, NotBlank]
    description: str | None = None


class Choice(Params):
    """One of several choices: its value, which is also what the model writes ("true" or
    "false" for a bool), and when it applies.
    """

    value: Annotated[StrictStr, NotBlank] | StrictBool
    description: str | None = None

    @property
    def label(self) -> str:
        """What the model writes."""
        return self.value if isinstance(self.value, str) else str(self.value).lower()


AnOption = Annotated[
    Option, BeforeValidator(lambda it: {"label": it} if isinstance(it, str) else it)
]

AChoice = Annotated[
    Choice, BeforeValidator(lambda it: {"value": it} if isinstance(it, str | bool) else it)
]


class Question(Params):
    """A question about an input. name: how its answer is found, unique among the questions."""

    instructions: str
    name: Name | None = None
    type: str

    @property
    @abstractmethod
    def options(self) -> Sequence[Option | Choice]:
        """Its possible answers, in order."""

    @property
    @abstractmethod
    def values(self) -> Sequence[str | bool | int]:
        """What an answer's truth may be, in the order of the options."""

    @property
    def labels(self) -> tuple[str, ...]:
        """What the model writes for each of them."""
        return tuple(option.label for option in self.options)

    @abstractmethod
    def answer(self, finding: Finding) -> Answer:
        """Return the answer with a finding on its options."""


class PredicateQuestion(Question):
    """Is it so? `yes` and `no` are what the model writes, and maybe when each applies."""

    type: Literal["predicate"] = "predicate"
    yes: AnOption = Option(label="yes")
    no: AnOption = Option(label="no")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            instructions: str,
            name: str | None = None,
            yes: Option | str = ...,
            no: Option | str = ...,
        ) -> None: ...

    @property
    def options(self) -> tuple[Option, ...]:
        return self.yes, self.no

    @property
    def values(self) -> Sequence[bool]:
        return True, False

    def answer(self, finding: Finding) -> PredicateAnswer:
        probability = finding.shares[0]
        return PredicateAnswer(name=self.name, probability=probability, **finding.details)


class ChoiceQuestion(Question):
    """Which of these? choices: texts, bools or `Choice`s."""

    type: Literal["choice"] = "choice"
    choices: Annotated[tuple[AChoice, ...], FailFast()] = Field(
        min_length=2, max_length=MAX_CHOICES
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            instructions: str,
            name: str | None = None,
            choices: Sequence[Choice | str | bool],
        ) -> None: ...

    @property
    def options(self) -> tuple[Choice, ...]:
        return self.choices

    @property
    def values(self) -> Sequence[str | bool]:
        return [choice.value for choice in self.choices]

    def answer(self, finding: Finding) -> ChoiceAnswer:
        """Return the likeliest choice; the first one wins a tie."""
        pairs = list(zip(self.values, finding.shares, strict=True))
        return ChoiceAnswer(
            name=self.name,
            choice=max(pairs, key=lambda pair: pair[1])[0],
            confidence=finding.confidence,
            probabilities=tuple(ChoiceProbability(value=v, probability=p) for v, p in pairs),
            **finding.details,
        )


class ScoreQuestion(Question):
    """How much? levels: from the lowest to the highest, texts or `Option`s."""

    type: Literal["score"] = "score"
    levels: Annotated[tuple[AnOption, ...], FailFast()] = Field(min_length=2, max_length=MAX_LEVELS)

    if TYPE_CHECKING:

        def __init__(
            self, *, instructions: str, name: str | None = None, levels: Sequence[Option | str]
        ) -> None: ...

    @property
    def options(self) -> tuple[Option, ...]:
        return self.levels

    @property
    def values(self) -> Sequence[int]:
        return range(len(self.levels))

    def answer(self, finding: Finding) -> ScoreAnswer:
        """Return the mean level, counted from 0."""
        levels = list(zip(self.values, self.labels, finding.shares, strict=True))
        return ScoreAnswer(
            name=self.name,
            score=sum(value * share for value, _, share in levels),
            confidence=finding.confidence,
            probabilities=tuple(
                LevelProbability(value=value, label=label, probability=share)
                for value, label, share in levels
            ),
            **finding.details,
        )


AnyQuestion = Annotated[
    PredicateQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")
]

_QUESTIONS: TypeAdapter[list[AnyQuestion]] = TypeAdapter(
    Annotated[list[AnyQuestion], Field(min_length=1, max_length=MAX_QUESTIONS)]
)


def check_questions(questions: object) -> Sequence[Question]:
    """Return the questions, which may be JSON. Raises InputError for none, for too many,
    for invalid ones, and for two of one name.
    """
    try:
        checked = _QUESTIONS.validate_python(questions)
    except ValidationError as error:
        raise input_error(error, "questions") from error
    names = [question.name for question in checked if question.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two questions have the name {name!r:.80}", "questions")
    return checked
