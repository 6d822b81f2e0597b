"""Decisions over HTTP: OpenAI's wire format and System One's, each as the questions that they are
here.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue, Tag, TypeAdapter
from pydantic import ValidationError as Invalid

from dise_app.server.schemas import TEXT_OR_LIST, Body, FailFastList, PlainText
from dise_core import (
    ChoiceAnswer,
    ChoiceQuestion,
    DecisionOutput,
    DecisionParams,
    Option,
    PredicateAnswer,
    PredicateQuestion,
    Question,
    ScoreAnswer,
    ScoreQuestion,
)
from dise_core.params import Name
from dise_core.questions import MAX_CHOICES, MAX_LEVELS, MAX_QUESTIONS, Label
from dise_core.records import Record

MAX_MESSAGES = 1024


class TextPart(Body):
    """A part of a message, or of instructions: text."""

    type: Literal["input_text", "output_text"]
    text: str
    prompt_cache_breakpoint: dict[str, str] | None = None


class JsonPart(Body):
    """A part that is JSON, which is read as text."""

    type: Literal["input_json"]
    data: dict[str, JsonValue] | list[dict[str, JsonValue]]

    @property
    def text(self) -> str:
        return as_text(self.data)


Part = Annotated[TextPart | JsonPart, Field(discriminator="type")]
PARTS: TypeAdapter[list[TextPart | JsonPart]] = TypeAdapter(list[Part])


def as_text(value: object) -> str:
    """Return a text as it is, and any other JSON written out."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class DecisionMessage(Body):
    """One turn of a conversation."""

    role: Literal["user", "system", "developer", "assistant"]
    content: Annotated[PlainText | Annotated[list[Part], Tag("is-list")], TEXT_OR_LIST]
    type: Literal["message"] = "message"
    phase: Literal["commentary", "final_answer"] | None = None

    def plain(self) -> dict[str, str]:
        """Return the turn in the chat template's format: a developer speaks as the system."""
        its = self.content
        content = its if isinstance(its, str) else "\n".join(part.text for part in its)
        return {"role": self.role.replace("developer", "system"), "content": content}


def _with_text(given: object) -> object:
    """Return a question whose instructions are one text, also if they came in parts."""
    if not isinstance(given, dict) or not isinstance(given.get("instructions"), list):
        return given
    try:
        parts = PARTS.validate_python(given["instructions"])
    except Invalid as error:
        raise ValueError(
            "instructions are a text, or parts of the type input_text or input_json"
        ) from error
    return {**given, "instructions": "\n".join(part.text for part in parts)}


Asked = Annotated[
    Annotated[PredicateQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")],
    BeforeValidator(_with_text),
]


Messages = Annotated[
    list[DecisionMessage],
    FailFastList,
    Field(min_length=1, max_length=MAX_MESSAGES),
    Tag("is-list"),
]


class DecisionRequest(Body):
    """POST /v1/decisions, as OpenAI's, with our settings in a `dise` object. Hints for a cache have
    no effect.
    """

    model: str | None = None
    input: Annotated[PlainText | Messages, TEXT_OR_LIST]
    questions: Annotated[list[Asked], FailFastList, Field(min_length=1, max_length=MAX_QUESTIONS)]
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, str] | None = None
    dise: DecisionParams = Field(default_factory=DecisionParams)

    @property
    def given(self) -> str | list[dict[str, str]]:
        """What the questions are about."""
        if isinstance(self.input, str):
            return self.input
        return [message.plain() for message in self.input]


class NoulCriteria(Body):
    """When the answer is yes, and when it is no."""

    true: JsonValue = None
    false: JsonValue = None


class NoulQuestion(Body):
    """Is it so?"""

    type: Literal["noul"]
    instructions: JsonValue = None
    criteria: NoulCriteria | None = None

    def question(self, name: str) -> PredicateQuestion:
        criteria = self.criteria or NoulCriteria()
        return PredicateQuestion(
            name=name,
            instructions=_instructions(self.instructions, "Is this true of the input?"),
            yes=Option(label="yes", description=_note(criteria.true)),
            no=Option(label="no", description=_note(criteria.false)),
        )


class NamedChoices(Body):
    """Which of these? The criteria are the choices, each with when it applies."""

    type: Literal["choice"]
    instructions: JsonValue = None
    criteria: dict[Label, JsonValue] = Field(min_length=2, max_length=MAX_CHOICES)

    def question(self, name: str) -> ChoiceQuestion:
        return ChoiceQuestion.model_validate(
            {
                "name": name,
                "instructions": _instructions(
                    self.instructions, "Which choice best fits the input?"
                ),
                "choices": [
                    {"value": value, "description": _note(note)}
                    for value, note in self.criteria.items()
                ],
            }
        )


class DescribedLevels(Body):
    """How much? The criteria describe the levels, lowest first; the model writes their numbers."""

    type: Literal["score"]
    instructions: JsonValue = None
    criteria: list[JsonValue] = Field(min_length=2, max_length=MAX_LEVELS)

    def question(self, name: str) -> ScoreQuestion:
        return ScoreQuestion(
            name=name,
            instructions=_instructions(self.instructions, "Which level best fits the input?"),
            levels=tuple(
                Option(label=str(number), description=_note(note))
                for number, note in enumerate(self.criteria)
            ),
        )


def _instructions(given: JsonValue, default: str) -> str:
    return default if given is None else as_text(given)


def _note(given: JsonValue) -> str | None:
    return None if given is None else as_text(given)


Named = Annotated[NoulQuestion | NamedChoices | DescribedLevels, Field(discriminator="type")]


def _few(given: object) -> object:
    """Refuse too many questions at once, before each becomes a problem of its own."""
    if isinstance(given, dict) and len(given) > MAX_QUESTIONS:
        raise ValueError(f"at most {MAX_QUESTIONS} questions, not {len(given)}")
    return given


class SystemOneRequest(DecisionParams):
    """POST /v1/systemone: named questions about any JSON, with our settings beside them."""

    model: str | None = None
    state: JsonValue
    instructions: str | None = None
    questions: Annotated[dict[Name, Named], BeforeValidator(_few)] = Field(min_length=1)

    @property
    def given(self) -> str:
        """What the questions are about."""
        state = as_text(self.state)
        return state if self.instructions is None else f"{self.instructions}\n\n{state}"

    @property
    def asked(self) -> list[Question]:
        return [question.question(name) for name, question in self.questions.items()]

    @property
    def params(self) -> DecisionParams:
        return DecisionParams(joint=self.joint, layout=self.layout)

    def answers(self, output: DecisionOutput) -> Record:
        pairs = zip(self.questions.items(), output.answers, strict=True)
        return {name: _systemone(question, answer) for (name, question), answer in pairs}


def _systemone(
    question: NoulQuestion | NamedChoices | DescribedLevels,
    answer: PredicateAnswer | ChoiceAnswer | ScoreAnswer,
) -> Record:
    if isinstance(answer, PredicateAnswer):
        return {"type": "noul", "noul": answer.probability}
    record: Record = {"type": answer.type, "confidence": answer.confidence}
    if isinstance(answer, ChoiceAnswer):
        by_value = {str(each.value): each.probability for each in answer.probabilities}
        return record | {"choice": answer.choice, "probabilities": by_value}
    assert isinstance(question, DescribedLevels)
    return record | {
        "score": answer.score,
        "legend": {str(level): note for level, note in enumerate(question.criteria)},
        "probabilities": {str(each.value): each.probability for each in answer.probabilities},
    }


def openai_body(output: DecisionOutput) -> Record:
    """Return the answer to POST /v1/decisions."""
    usage = output.usage
    return {
        "model": output.model,
        "answers": [
            answer.model_dump(mode="json", exclude={"diagnostics"}) for answer in output.answers
        ],
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        },
        "dise": _cost(output) | {"diagnostics": [_told(answer) for answer in output.answers]},
    }


def systemone_body(body: SystemOneRequest, output: DecisionOutput) -> Record:
    """Return the answer to POST /v1/systemone."""
    usage = output.usage
    return {
        "model": output.model,
        "answers": body.answers(output),
        "usage": {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens},
        "diagnostics": {
            name: _told(answer) for name, answer in zip(body.questions, output.answers, strict=True)
        },
        "dise": _cost(output),
    }


def _told(answer: PredicateAnswer | ChoiceAnswer | ScoreAnswer) -> Record:
    return answer.diagnostics.model_dump(include={"label_mass", "argmax_is_label"})


def _cost(output: DecisionOutput) -> Record:
    return {
        "nfe": output.usage.nfe,
        "seconds": round(output.usage.seconds, 4),
        "is_joint": output.is_joint,
        "warnings": list(output.warnings),
    }
