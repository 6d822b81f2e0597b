"""Requests to POST /v1/responses: a text or messages, and OpenAI's settings for text."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, Tag, model_validator

from dise_app.server.schemas.bodies import (
    TEXT_OR_LIST,
    Body,
    FastList,
    OpenBody,
    PlainText,
    Strings,
    TextOrListOf,
)
from dise_app.server.schemas.forms import ResponseFormat
from dise_app.server.schemas.requests import ContentPart, WritingRequest, plain_turn
from dise_core.params.base import Settings
from dise_core.records import Record


class ItemPart(ContentPart):
    """A part of a message; that of an answer may be sent back as it came."""

    type: Literal["input_text", "output_text"]
    logprobs: FastList[Record] | None = None


class MessageItem(OpenBody):
    """One turn of a conversation; one of an answer may be sent back as it came."""

    type: Literal["message"] = "message"
    role: Literal["user", "system", "developer", "assistant"]
    content: TextOrListOf[ItemPart]
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    dise: dict[str, object] | None = None

    def plain(self) -> Record:
        return plain_turn(self.role, self.content)


class TextOptions(OpenBody):
    """OpenAI's `text`."""

    format: ResponseFormat | None = None


class Reasoning(Body):
    """OpenAI's `reasoning`, when it asks for none."""

    effort: Literal["none"] | None = None
    summary: None = None
    generate_summary: None = None


Items = Annotated[FastList[MessageItem], Field(min_length=1, max_length=1024), Tag("is-list")]


class ResponseRequest(WritingRequest):
    """POST /v1/responses. left_out: other routes' options, each with its reason."""

    left_out: ClassVar[Mapping[str, str]] = {
        "n": "a response is one message; best_of writes several and keeps the best",
        "stop": "OpenAI's API has no stop texts there",
        "max_tokens": "it is max_output_tokens there",
        "logprobs": "include asks for them there, and top_logprobs says how many",
    }

    input: Annotated[PlainText | Items, TEXT_OR_LIST]
    instructions: str | None = None
    chat_template_kwargs: Settings | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    max_tool_calls: int | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    include: Annotated[Strings, Field(max_length=64)] = Field(default_factory=list)
    text: TextOptions = Field(default_factory=TextOptions)
    reasoning: Reasoning | None = None

    @property
    def settings(self) -> dict[str, object]:
        length = self.max_output_tokens
        return {**({} if length is None else {"max_tokens": length}), **super().settings}

    @model_validator(mode="after")
    def _one_format(self) -> Self:
        self.response_format = self.text.format or self.response_format
        return self

    @property
    def conversation(self) -> list[Record]:
        if isinstance(self.input, str):
            turns = [{"role": "user", "content": self.input}]
        else:
            turns = [item.plain() for item in self.input]
        if self.instructions is None:
            return turns
        return [{"role": "system", "content": self.instructions}, *turns]

    @property
    def shown_logprobs(self) -> int | None:
        is_shown = "message.output_text.logprobs" in self.include
        return (self.top_logprobs or 0) if is_shown else None
