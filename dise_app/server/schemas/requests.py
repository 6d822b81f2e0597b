"""Requests from clients: OpenAI's, with our settings in a `dise` object."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    Tag,
    model_validator,
)

from dise_app.server.schemas.neutral import without_neutral
from dise_core.params.base import MAX_LENGTH, Suggesting, TokenId
from dise_core.params.biases import LogitBias
from dise_core.params.requests import Denoising, SamplingParams, ScoringParams

MAX_ANSWERS = 64
MAX_PROMPTS = 256
MAX_CANDIDATES = 256
MAX_STOPS = 16


class _FailFast(FailFast):
    """pydantic's FailFast, as unions need it: a list of a million wrong items is one problem."""

    __hash__ = object.__hash__


FailFastList = _FailFast()
"""Stops at a list's first wrong item."""

Item = TypeVar("Item")
FastList = Annotated[list[Item], FailFastList]
TokenIds = FastList[int]
Strings = FastList[str]
TextOrIds = str | TokenIds
PlainText = Annotated[str, Tag("is-text")]

TEXT_OR_LIST = Discriminator(lambda value: "is-list" if isinstance(value, list) else "is-text")
"""Tells a text from a list, so that a wrong item is the problem, and not the list."""

TextOrListOf = Annotated[PlainText | Annotated[FastList[Item], Tag("is-list")], TEXT_OR_LIST]


class Body(Suggesting):
    """A request, or a part of one, of which every field is known."""

    model_config = ConfigDict(extra="forbid")


class OpenBody(Body):
    """A request in OpenAI's format, without the fields that ask for nothing."""

    @model_validator(mode="before")
    @classmethod
    def _without_neutral(cls, body: object) -> object:
        return without_neutral(body, frozenset(cls.model_fields))


class Extensions(Denoising):
    """The `dise` object of a completion request."""

    stream: Literal["text", "canvas"] = "text"
    """Deltas of text, or also every step's canvas."""


class StreamOptions(OpenBody):
    """OpenAI's stream_options, with vLLM's."""

    include_usage: bool = False
    continuous_usage_stats: Literal[False] = False
    include_obfuscation: bool = False


class WritingRequest(OpenBody):
    """The fields that all endpoints share that write answers."""

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int | None, BeforeValidator(lambda count: 0 if count == -1 else count)] = None
    """All tokens are 0 here, and -1 in vLLM."""
    seed: int | None = Field(default=None, ge=0, lt=2**64)
    logit_bias: LogitBias | None = None
    allowed_token_ids: FastList[TokenId] | None = Field(
        default=None, min_length=1, max_length=MAX_LENGTH
    )
    stream: bool = False
    dise: Extensions = Field(default_factory=Extensions)

    @property
    def settings(self) -> dict[str, object]:
        """The library's parameters that the request sets."""
        fields = type(self).model_fields.keys() & SamplingParams.model_fields.keys()
        # These two are not what the library has under the same name.
        values = ((name, getattr(self, name)) for name in fields - {"stop", "logprobs"})
        settings = {name: value for name, value in values if value is not None}
        return settings | self.dise.model_dump(exclude={"stream"}, exclude_unset=True)

    @property
    @abstractmethod
    def shown_logprobs(self) -> int | None:
        """How many likely tokens to show for each; None for no log-probabilities."""


class Completion(WritingRequest):
    """The fields that both completion endpoints share."""

    max_tokens: int | None = Field(default=None, ge=1)
    n: int | None = Field(default=None, ge=1, le=MAX_ANSWERS)
    best_of: int | None = Field(default=None, ge=1, le=MAX_ANSWERS)
    stop: str | Strings | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _has_few_stops(self) -> Self:
        if isinstance(self.stop, list) and len(self.stop) > MAX_STOPS:
            raise ValueError(f"at most {MAX_STOPS} stop texts, not {len(self.stop)}")
        return self

    @property
    def settings(self) -> dict[str, object]:
        """The library's parameters that the request sets; empty stop texts stop nothing."""
        if self.stop is None:
            return super().settings
        stops = [self.stop] if isinstance(self.stop, str) else self.stop
        return {**super().settings, "stop": tuple(filter(None, stops))}


class CompletionRequest(Completion):
    """POST /v1/completions. `prompt` is a text, used as it is, token ids, or a list of either."""

    prompt: str | TokenIds | Strings | FastList[TokenIds]
    logprobs: int | None = Field(default=None, ge=0, le=20)
    max_tokens: int | None = Field(default=None, ge=0)
    echo: bool = False

    @property
    def prompts(self) -> list[TextOrIds]:
        return _several(self.prompt)

    @property
    def shown_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def settings(self) -> dict[str, object]:
        """The library's parameters that the request sets; without an answer none has a length."""
        return super().settings | ({"max_tokens": 1} if self.max_tokens == 0 else {})

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        _check_count("prompt", len(self.prompts), MAX_PROMPTS)
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens=0 writes nothing; with echo it scores the prompt")
        if self.echo and self.stream:
            raise ValueError("echo does not stream; leave one of the two out")
        if self.max_tokens == 0 and (self.n or 1, self.best_of or 1) != (1, 1):
            raise ValueError("with max_tokens=0 there is one choice for each prompt; leave out n")
        return self


class ContentPart(OpenBody):
    """One part of a message's content; only text is read."""

    type: str
    text: str


class ChatPart(ContentPart):
    """A part of a chat's message."""

    type: Literal["text"]
    prompt_cache_breakpoint: dict[str, str] | None = None


class ChatMessage(OpenBody):
    """One turn of a conversation; a message of an answer may be sent back as it came."""

    role: str
    content: TextOrListOf[ChatPart] | None = None
    name: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None

    def plain(self) -> dict[str, str]:
        return plain_turn(self.role, self.content or "")


def plain_turn(role: str, content: str | Sequence[ContentPart]) -> dict[str, str]:
    """Return a turn in the chat template's format: a developer speaks as the system."""
    text = content if isinstance(content, str) else "".join(part.text for part in content)
    return {"role": "system" if role == "developer" else role, "content": text}


class ChatRequest(Completion):
    """POST /v1/chat/completions."""

    messages: FastList[ChatMessage] = Field(min_length=1, max_length=1024)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)

    @property
    def conversation(self) -> list[dict[str, str]]:
        return [message.plain() for message in self.messages]

    @property
    def shown_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        self.max_tokens = self.max_completion_tokens or self.max_tokens
        return self


class ScoringRequest(ScoringParams):
    """The fields that POST /v1/score and /v1/rank share. All texts follow the one prompt; without
    it each is scored by itself.
    """

    model: str | None = None
    prompt: TextOrIds = ""
    chat: bool | None = None

    @property
    def settings(self) -> dict[str, object]:
        return self.model_dump(include=set(ScoringParams.model_fields), exclude_unset=True)


class ScoreRequest(ScoringRequest):
    """POST /v1/score."""

    response: TextOrIds | Strings | FastList[TokenIds]
    finished: bool | None = None

    @property
    def responses(self) -> list[TextOrIds]:
        return _several(self.response)

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        _check_count("response", len(self.responses), MAX_CANDIDATES)
        return self


class RankRequest(ScoringRequest):
    """POST /v1/rank."""

    candidates: list[TextOrIds] = Field(min_length=1, max_length=MAX_CANDIDATES)


def _check_count(name: str, count: int, most: int) -> None:
    if not 1 <= count <= most:
        raise ValueError(f"{name}: 1 to {most} {name}s, not {count}")


def _several(texts: TextOrIds | list[str] | list[TokenIds]) -> list[TextOrIds]:
    """Return the texts as a list; a text or a flat list of token ids is one text."""
    if isinstance(texts, str) or all(isinstance(item, int) for item in texts):
        return [texts]  # type: ignore[list-item]
    return list(texts)  # type: ignore[arg-type]
