"""Requests to POST /v1/responses: a text or messages, and OpenAI's settings for text."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, Tag

from dise_app.server.schemas import (
    MAX_ANSWERS,
    TEXT_OR_LIST,
    Body,
    FailFastList,
    OpenBody,
    PlainText,
    StreamOptions,
    Strings,
    Written,
)
from dise_core.records import Record

MAX_ITEMS = 1024

LOGPROBS = "message.output_text.logprobs"
"""What `include` names to be sent log-probabilities."""


class ContentPart(OpenBody):
    """A part of a message; that of an answer may be sent back as it came."""

    type: Literal["input_text", "output_text"]
    text: str
    logprobs: list[Record] | None = None


Parts = Annotated[list[ContentPart], FailFastList, Tag("is-list")]


class MessageItem(OpenBody):
    """One turn of a conversation; one of an answer may be sent back as it came."""

    type: Literal["message"] = "message"
    role: Literal["user", "system", "developer", "assistant"]
    content: Annotated[PlainText | Parts, TEXT_OR_LIST]
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    dise: Record | None = None

    def plain(self) -> dict[str, str]:
        """Return the turn in the chat template's format: a developer speaks as the system."""
        its = self.content
        content = its if isinstance(its, str) else "".join(part.text for part in its)
        return {"role": self.role.replace("developer", "system"), "content": content}


class TextFormat(Body):
    """The format of an answer; no other is written."""

    type: Literal["text"]


class TextOptions(OpenBody):
    """OpenAI's `text`."""

    format: TextFormat | None = None


class Reasoning(Body):
    """OpenAI's `reasoning`, when it asks for none."""

    effort: Literal["none"] | None = None
    summary: None = None
    generate_summary: None = None


Items = Annotated[
    list[MessageItem], FailFastList, Field(min_length=1, max_length=MAX_ITEMS), Tag("is-list")
]


class ResponseRequest(Written):
    """POST /v1/responses."""

    sampling: ClassVar[tuple[str, ...]] = (*Written.sampling, "best_of")

    input: Annotated[PlainText | Items, TEXT_OR_LIST]
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    best_of: int | None = Field(default=None, ge=1, le=MAX_ANSWERS)
    max_tool_calls: int | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    include: Annotated[Strings, Field(max_length=64)] = Field(default_factory=list)
    text: TextOptions = Field(default_factory=TextOptions)
    reasoning: Reasoning | None = None
    stream_options: StreamOptions | None = None

    @property
    def settings(self) -> Record:
        length = self.max_output_tokens
        return {**({} if length is None else {"max_tokens": length}), **super().settings}

    @property
    def conversation(self) -> list[dict[str, str]]:
        """The messages in the chat template's format, after the instructions."""
        if isinstance(self.input, str):
            turns = [{"role": "user", "content": self.input}]
        else:
            turns = [item.plain() for item in self.input]
        if self.instructions is None:
            return turns
        return [{"role": "system", "content": self.instructions}, *turns]

    @property
    def shown_logprobs(self) -> int | None:
        """How many likely tokens to show for each; None for no log-probabilities."""
        return (self.top_logprobs or 0) if LOGPROBS in self.include else None
