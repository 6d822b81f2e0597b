"""Decisions over HTTP, in OpenAI's wire format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BeforeValidator, Field, Tag, TypeAdapter
from pydantic import ValidationError as Invalid

from dise_app.server.schemas.bodies import TEXT_OR_LIST, Body, FastList, PlainText, TextOrListOf
from dise_app.server.schemas.requests import plain_turn
from dise_app.server.service import Service
from dise_core.params.base import Salt
from dise_core.plans.plan import salted
from dise_core.records import Record
from dise_decide import DecisionCalibration, DecisionOutput, DecisionParams
from dise_decide.llm import decisions
from dise_decide.params import ServedDecisions
from dise_decide.questions import MAX_QUESTIONS, AnyQuestion

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
    if isinstance(questions, list):
        dicts = [item for item in questions[:MAX_QUESTIONS] if isinstance(item, dict)]
        lists = (item.get(name) for item in dicts for name in ("choices", "levels"))
        count = sum(len(options) for options in lists if isinstance(options, list))
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


def add_decisions(router: APIRouter, service: Service) -> None:
    """Add the routes of typed questions; the operator sets the defaults."""
    defaults = service.options(DecisionParams)
    calibration = DecisionCalibration.of(service.options(ServedDecisions).decision_calibration)
    if calibration is not None:
        calibration.applied(defaults)

    @router.post("/v1/decisions")
    async def decide(body: DecisionRequest, request: Request) -> Record:
        service.check_model(body.model)
        how, planner = body.dise.over(defaults), service.llm.planner
        job = decisions(planner, [body.subject], body.questions, how, calibration=calibration)
        job = replace(job, plans=[salted(plan, body.cache_salt) for plan in job.plans])
        [output] = await service.run(service.llm.do(job), request)
        return {"model": service.model} | openai_body(output)


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
