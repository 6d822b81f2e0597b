"""Decisions over HTTP: OpenAI's wire format and System One's, each as the questions that
they are here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import starmap
from typing import Annotated, ClassVar, Literal

from fastapi import APIRouter, Request
from pydantic import BeforeValidator, Field, JsonValue, Tag, TypeAdapter
from pydantic import ValidationError as Invalid

from dise_app.server.schemas.bodies import TEXT_OR_LIST, Body, FastList, PlainText, TextOrListOf
from dise_app.server.schemas.requests import plain_turn
from dise_app.server.service import Service
from dise_core.params.base import Name, Salt, not_larger
from dise_core.plans.plan import salted
from dise_core.records import Record
from dise_decide import (
    Choice,
    ChoiceQuestion,
    DecisionCalibration,
    DecisionOutput,
    DecisionParams,
    Option,
    PredicateAnswer,
    PredicateQuestion,
    Question,
    ScoreQuestion,
)
from dise_decide.llm import decisions
from dise_decide.outputs import Answer
from dise_decide.params import ServedDecisions
from dise_decide.questions import MAX_CHOICES, MAX_LEVELS, MAX_QUESTIONS, AnyQuestion

MAX_MESSAGES = 1024

MAX_OPTIONS = 2**14
"""Options of all questions of a request."""


class TextPart(Body):
    """A part of a message, or of instructions: text."""

    type: Literal["input_text", "output_text"]
    text: str
    prompt_cache_breakpoint: Record | None = None


class JsonPart(Body):
    """A part that is JSON, which is read as text."""

    type: Literal["input_json"]
    data: Record | FastList[Record]

    @property
    def text(self) -> str:
        return as_text(self.data)


MessagePart = Annotated[TextPart | JsonPart, Field(discriminator="type")]
PARTS = TypeAdapter[list[TextPart | JsonPart]](FastList[MessagePart])


def as_text(value: object) -> str:
    """Return a text as it is, and any other JSON written out."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class DecisionMessage(Body):
    """One turn of a conversation."""

    role: Literal["user", "system", "developer", "assistant"]
    content: TextOrListOf[MessagePart]
    type: Literal["message"] = "message"
    phase: Literal["commentary", "final_answer"] | None = None

    def plain(self) -> Record:
        content = self.content if isinstance(self.content, str) else _text_of(self.content)
        return plain_turn(self.role, content)


def _with_text(question: object) -> object:
    """Return a question whose instructions are one text, also if they came in parts."""
    if not isinstance(question, dict) or not isinstance(question.get("instructions"), list):
        return question
    try:
        parts = PARTS.validate_python(question["instructions"])
    except Invalid as error:
        raise ValueError(
            "instructions are a text, or parts of the type input_text or input_json"
        ) from error
    return {**question, "instructions": _text_of(parts)}


def _text_of(parts: Sequence[TextPart | JsonPart]) -> str:
    return "\n".join(part.text for part in parts)


def _few_options(questions: object) -> object:
    """Return the questions. Refuses more than MAX_OPTIONS options before any is built."""
    questions = not_larger(questions, MAX_QUESTIONS)
    items = [*questions.values()] if isinstance(questions, dict) else questions
    if isinstance(items, list):
        dicts = [item for item in items[:MAX_QUESTIONS] if isinstance(item, dict)]
        lists = (item.get(name) for item in dicts for name in ("choices", "levels", "criteria"))
        count = sum(len(options) for options in lists if isinstance(options, list | dict))
        if count > MAX_OPTIONS:
            raise ValueError(f"they have {count} options in all, more than {MAX_OPTIONS}")
    return questions


TypedQuestion = Annotated[AnyQuestion, BeforeValidator(_with_text)]

Messages = Annotated[
    FastList[DecisionMessage], Field(min_length=1, max_length=MAX_MESSAGES), Tag("is-list")
]


class DecisionRequest(Body):
    """POST /v1/decisions, as OpenAI's, with our settings in a `dise` object. Hints for a
    cache have no effect.
    """

    model: str | None = None
    input: Annotated[PlainText | Messages, TEXT_OR_LIST]
    questions: Annotated[
        FastList[TypedQuestion],
        BeforeValidator(_few_options),
        Field(min_length=1, max_length=MAX_QUESTIONS),
    ]
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: Record | None = None
    cache_salt: Salt | None = None
    dise: DecisionParams = Field(default_factory=DecisionParams)

    @property
    def subject(self) -> str | list[Record]:
        if isinstance(self.input, str):
            return self.input
        return [message.plain() for message in self.input]


Note = Annotated[str | None, BeforeValidator(lambda it: it if it is None else as_text(it))]
"""Any JSON, which is read as text."""


class NamedQuestion(Body):
    """A question whose name is its key."""

    default: ClassVar[str]
    instructions: Note = None

    @property
    def text(self) -> str:
        return self.default if self.instructions is None else self.instructions


class NoulCriteria(Body):
    """When the answer is yes, and when it is no."""

    true: Note = None
    false: Note = None


class NoulQuestion(NamedQuestion):
    """Is it so?"""

    default = "Is this true of the input?"
    type: Literal["noul"]
    criteria: NoulCriteria | None = None

    def question(self, name: str) -> PredicateQuestion:
        criteria = self.criteria or NoulCriteria()
        yes = Option(label="yes", description=criteria.true)
        no = Option(label="no", description=criteria.false)
        return PredicateQuestion(name=name, instructions=self.text, yes=yes, no=no)


class NamedChoices(NamedQuestion):
    """Which of these? The criteria are the choices, each with when it applies."""

    default = "Which choice best fits the input?"
    type: Literal["choice"]
    criteria: Annotated[
        dict[str, Note], BeforeValidator(lambda criteria: not_larger(criteria, MAX_CHOICES))
    ] = Field(min_length=2)

    def question(self, name: str) -> ChoiceQuestion:
        choices = [Choice(value=value, description=note) for value, note in self.criteria.items()]
        return ChoiceQuestion(name=name, instructions=self.text, choices=choices)


class DescribedLevels(NamedQuestion):
    """How much? The criteria describe the levels, lowest first; the model writes their numbers."""

    default = "Which level best fits the input?"
    type: Literal["score"]
    criteria: list[Note] = Field(min_length=2, max_length=MAX_LEVELS)

    def question(self, name: str) -> ScoreQuestion:
        levels = [Option(label=f"{n}", description=note) for n, note in enumerate(self.criteria)]
        return ScoreQuestion(name=name, instructions=self.text, levels=levels)


Named = Annotated[NoulQuestion | NamedChoices | DescribedLevels, Field(discriminator="type")]


class SystemOneRequest(DecisionParams):
    """POST /v1/systemone: named questions about any JSON, with our settings beside them."""

    model: str | None = None
    cache_salt: Salt | None = None
    state: JsonValue
    instructions: str | None = None
    questions: Annotated[dict[Name, Named], BeforeValidator(_few_options)] = Field(min_length=1)

    @property
    def subject(self) -> str:
        state = as_text(self.state)
        return state if self.instructions is None else f"{self.instructions}\n\n{state}"

    @property
    def typed_questions(self) -> list[Question]:
        return [question.question(name) for name, question in self.questions.items()]


def _systemone_answer(question: Named, answer: Answer) -> Record:
    """Return an answer in System One's format."""
    record = answer.model_dump(mode="json", exclude={"name", "diagnostics", "probability"})
    if isinstance(answer, PredicateAnswer):
        return record | {"type": "noul", "noul": answer.probability}
    shares = {str(share.value): share.probability for share in answer.probabilities}
    record["probabilities"] = shares
    if isinstance(question, DescribedLevels):
        record["legend"] = {str(level): note for level, note in enumerate(question.criteria)}
    return record


def openai_body(output: DecisionOutput) -> Record:
    """Return the answer to POST /v1/decisions."""
    usage = output.usage
    return {
        "answers": [
            answer.model_dump(mode="json", exclude={"diagnostics"}) for answer in output.answers
        ],
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        },
        "dise": _cost(output) | {"diagnostics": _diagnostics(output)},
    }


def systemone_body(body: SystemOneRequest, output: DecisionOutput) -> Record:
    """Return the answer to POST /v1/systemone."""
    usage, pairs = output.usage, zip(body.questions.values(), output.answers, strict=True)
    return {
        "answers": dict(zip(body.questions, starmap(_systemone_answer, pairs), strict=True)),
        "usage": {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens},
        "diagnostics": dict(zip(body.questions, _diagnostics(output), strict=True)),
        "dise": _cost(output),
    }


def add_decisions(router: APIRouter, service: Service) -> None:
    """Add the routes of typed questions; the operator sets the defaults."""
    defaults = service.options(DecisionParams)
    calibration = DecisionCalibration.of(service.options(ServedDecisions).decision_calibration)
    if calibration is not None:
        calibration.applied(defaults)

    async def answer(
        body: DecisionRequest | SystemOneRequest,
        questions: Sequence[Question],
        params: DecisionParams,
        request: Request,
    ) -> DecisionOutput:
        service.check_model(body.model)
        how, planner = params.over(defaults), service.llm.planner
        job = decisions(planner, [body.subject], questions, how, calibration=calibration)
        job = replace(job, plans=[salted(plan, body.cache_salt) for plan in job.plans])
        [output] = await service.run(service.llm.do(job), request)
        return output

    @router.post("/v1/decisions")
    async def decide(body: DecisionRequest, request: Request) -> Record:
        output = await answer(body, body.questions, body.dise, request)
        return {"model": service.model} | openai_body(output)

    @router.post("/v1/systemone")
    async def systemone(body: SystemOneRequest, request: Request) -> Record:
        output = await answer(body, body.typed_questions, body, request)
        return {"model": service.model} | systemone_body(body, output)


def _diagnostics(output: DecisionOutput) -> list[Record]:
    names = {"label_mass", "argmax_is_label", "reading", "passes", "confidence", "calibration"}
    return [answer.diagnostics.model_dump(include=names) for answer in output.answers]


def _cost(output: DecisionOutput) -> Record:
    return {
        "nfe": output.usage.nfe,
        "seconds": round(output.usage.seconds, 4),
        "is_joint": output.is_joint,
        "warnings": list(output.warnings),
    }
