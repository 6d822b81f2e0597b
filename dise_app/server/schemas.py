"""Requests from clients: OpenAI's, with our settings in a `dise` object. Unknown fields are refused
by name.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    Tag,
    model_validator,
)

from dise_app.server.neutral import without_neutral
from dise_core.biases import LogitBias
from dise_core.params import MAX_LENGTH, Denoising, ScoringParams, Suggesting, TokenId
from dise_core.records import Record

MAX_ANSWERS = 64
MAX_PROMPTS = 256
MAX_CANDIDATES = 256
MAX_STOPS = 16


class _FailFast(FailFast):
    """pydantic's FailFast, as unions need it: a list of a million wrong items is one problem."""

    __hash__ = object.__hash__


FailFastList = _FailFast()
"""Stops at a list's first wrong item."""

TokenIds = Annotated[list[int], _FailFast()]
Strings = Annotated[list[str], _FailFast()]
Texts = str | TokenIds
PlainText = Annotated[str, Tag("is-text")]

TEXT_OR_LIST = Discriminator(lambda given: "is-list" if isinstance(given, list) else "is-text")
"""Tells a text from a list, so that a wrong item is the problem, and not that the list is no text.
"""


class Body(Suggesting):
    """A request, or a part of one, of which every field is known."""

    model_config = ConfigDict(extra="forbid")


class OpenBody(Body):
    """A request in OpenAI's format, without the fields that ask for nothing."""

    @model_validator(mode="before")
    @classmethod
    def _without_neutral(cls, given: object) -> object:
        return without_neutral(given, frozenset(cls.model_fields))


class Extensions(Denoising):
    """The `dise` object of a completion request."""

    stream: Literal["text", "canvas"] = "text"
    """Deltas of text, or also every step's canvas."""


class StreamOptions(OpenBody):
    """OpenAI's stream_options, with vLLM's."""

    include_usage: bool = False
    continuous_usage_stats: Literal[False] = False
    include_obfuscation: bool = False


def _all_of_them(given: object) -> object:
    """Return vLLM's -1 as our 0: all tokens."""
    return 0 if given == -1 else given


class Written(OpenBody):
    """The fields that all endpoints share that write answers."""

    sampling: ClassVar[tuple[str, ...]] = (
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "logit_bias",
        "allowed_token_ids",
    )
    """Those that go to the library under the same name."""

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int | None, BeforeValidator(_all_of_them)] = None
    seed: int | None = Field(default=None, ge=0, lt=2**64)
    logit_bias: LogitBias | None = None
    allowed_token_ids: Annotated[list[TokenId], _FailFast()] | None = Field(
        default=None, min_length=1, max_length=MAX_LENGTH
    )
    stream: bool = False
    dise: Extensions = Field(default_factory=Extensions)

    @property
    def settings(self) -> Record:
        """The library's parameters that the request sets."""
        names = ((name, getattr(self, name)) for name in self.sampling)
        given = {name: value for name, value in names if value is not None}
        return given | self.dise.model_dump(exclude={"stream"}, exclude_unset=True)


class Completion(Written):
    """The fields that both completion endpoints share."""

    sampling: ClassVar[tuple[str, ...]] = (*Written.sampling, "max_tokens", "n", "best_of")

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
    def settings(self) -> Record:
        """The library's parameters that the request sets; empty stop texts stop nothing."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop
        stops = {} if given is None else {"stop": tuple(text for text in given if text)}
        return {**super().settings, **stops}

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(Completion):
    """POST /v1/completions. `prompt` is a text, used as it is, token ids, or a list of either."""

    prompt: str | TokenIds | Strings | Annotated[list[TokenIds], _FailFast()]
    logprobs: int | None = Field(default=None, ge=0, le=20)
    max_tokens: int | None = Field(default=None, ge=0)
    echo: bool = False

    @property
    def prompts(self) -> list[Texts]:
        return _several(self.prompt)

    @property
    def settings(self) -> Record:
        """The library's parameters that the request sets; without an answer none has a length."""
        given = super().settings
        return given if given.get("max_tokens") != 0 else {**given, "max_tokens": 1}

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if not 1 <= len(self.prompts) <= MAX_PROMPTS:
            raise ValueError(f"prompt: 1 to {MAX_PROMPTS} prompts, not {len(self.prompts)}")
        return self

    @model_validator(mode="after")
    def _echoes_what_it_can(self) -> Self:
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens=0 writes nothing; with echo it scores the prompt")
        if self.echo and self.stream:
            raise ValueError("echo does not stream; leave one of the two out")
        if self.max_tokens == 0 and (self.n or 1, self.best_of or 1) != (1, 1):
            raise ValueError("with max_tokens=0 there is one choice for each prompt; leave out n")
        return self


class TextPart(OpenBody):
    """One part of a message's content; only text is read."""

    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: dict[str, str] | None = None


Parts = Annotated[list[TextPart], FailFastList, Tag("is-list")]


class ChatMessage(OpenBody):
    """One turn of a conversation; a message of an answer may be sent back as it came."""

    role: str
    content: Annotated[PlainText | Parts, TEXT_OR_LIST] | None = None
    name: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None

    def plain(self) -> dict[str, str]:
        """Return the turn in the chat template's format, its text parts joined: a developer speaks
        as the system.
        """
        its = self.content or ""
        content = its if isinstance(its, str) else "".join(part.text for part in its)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class ChatRequest(Completion):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], _FailFast()] = Field(min_length=1, max_length=1024)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)

    @property
    def conversation(self) -> list[dict[str, str]]:
        return [message.plain() for message in self.messages]

    @property
    def shown_logprobs(self) -> int | None:
        """How many likely tokens to show for each; None for no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        self.max_tokens = self.max_completion_tokens or self.max_tokens
        return self


class Scored(ScoringParams):
    """The fields that POST /v1/score and /v1/rank share. All texts follow the one prompt; without
    it each is scored by itself.
    """

    model: str | None = None
    prompt: Texts = ""
    chat: bool | None = None

    @property
    def settings(self) -> Record:
        return self.model_dump(include=set(ScoringParams.model_fields), exclude_unset=True)


class ScoreRequest(Scored):
    """POST /v1/score."""

    response: Texts | Strings | Annotated[list[TokenIds], _FailFast()]
    finished: bool | None = None

    @property
    def responses(self) -> list[Texts]:
        return _several(self.response)

    @model_validator(mode="after")
    def _is_bounded(self) -> ScoreRequest:
        if not 1 <= len(self.responses) <= MAX_CANDIDATES:
            raise ValueError(
                f"response: 1 to {MAX_CANDIDATES} responses, not {len(self.responses)}"
            )
        return self


class RankRequest(Scored):
    """POST /v1/rank."""

    candidates: list[Texts] = Field(min_length=1, max_length=MAX_CANDIDATES)


def _several(given: Texts | list[str] | list[TokenIds]) -> list[Texts]:
    """Return the texts as a list; a text or a flat list of token ids is one text."""
    if isinstance(given, str) or all(isinstance(item, int) for item in given):
        return [given]  # type: ignore[list-item]
    return list(given)  # type: ignore[arg-type]
