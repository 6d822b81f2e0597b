"""Requests from clients: OpenAI's, with our settings in a `dise` object. Unknown fields are refused
by name.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from dise_core.params import Denoising, SamplingParams, ScoringParams

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


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Extensions(Denoising):
    """The `dise` object of a completion request."""

    stream: Literal["text", "canvas"] = "text"
    """Deltas of text, or also every step's canvas."""


class StreamOptions(_Body):
    """OpenAI's stream_options."""

    include_usage: bool = False
    include_obfuscation: bool = False


class Completion(_Body):
    """The fields that both completion endpoints share. Those that a diffusion model cannot honour
    must have their neutral value.
    """

    model: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = None
    top_p: float | None = None
    n: int = Field(1, ge=1, le=MAX_ANSWERS)
    best_of: int | None = Field(None, ge=1, le=MAX_ANSWERS)
    seed: int | None = Field(None, ge=0, lt=2**64)
    stop: str | Strings | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    dise: Extensions = Field(default_factory=Extensions)

    @model_validator(mode="after")
    def _is_possible(self) -> Completion:
        for name in ("frequency_penalty", "presence_penalty", "logit_bias"):
            if getattr(self, name):
                raise ValueError(
                    f"{name} is not supported: a diffusion model writes in no fixed order; leave "
                    "it out"
                )
        if isinstance(self.stop, list) and len(self.stop) > MAX_STOPS:
            raise ValueError(f"at most {MAX_STOPS} stop texts, not {len(self.stop)}")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        """The non-empty stop texts."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in given if text)

    def params(self, logprobs: int) -> SamplingParams:
        """Return the library's parameters. Raises ValidationError for values that it refuses."""
        names = ("max_tokens", "temperature", "top_p", "best_of", "seed")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        ours = self.dise.model_dump(exclude={"stream"}, exclude_unset=True)
        return SamplingParams.model_validate(
            {**given, **ours, "n": self.n, "stop": self.stops, "logprobs": logprobs}
        )


class CompletionRequest(Completion):
    """POST /v1/completions. `prompt` is a text, used as it is, token ids, or a list of either."""

    prompt: str | TokenIds | Strings | Annotated[list[TokenIds], _FailFast()]
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None

    @property
    def prompts(self) -> list[Texts]:
        """The prompts as a list."""
        return _several(self.prompt)

    @model_validator(mode="after")
    def _is_bounded(self) -> CompletionRequest:
        if not 1 <= len(self.prompts) <= MAX_PROMPTS:
            raise ValueError(f"prompt: 1 to {MAX_PROMPTS} prompts, not {len(self.prompts)}")
        return self


class TextPart(_Body):
    """One part of a message's content; only text is read."""

    type: Literal["text"]
    text: str


class ChatMessage(_Body):
    """One turn of a conversation."""

    role: str
    content: str | list[TextPart]
    name: str | None = None

    def plain(self) -> dict[str, str]:
        """Return the turn in the chat template's format, its text parts joined."""
        content = (
            self.content
            if isinstance(self.content, str)
            else "".join(part.text for part in self.content)
        )
        return {"role": self.role, "content": content}


class ChatRequest(Completion):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=1024)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)

    @model_validator(mode="after")
    def _one_length(self) -> ChatRequest:
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
    def params(self) -> ScoringParams:
        """The library's parameters."""
        return ScoringParams.of(self)


class ScoreRequest(Scored):
    """POST /v1/score."""

    response: Texts | Strings | Annotated[list[TokenIds], _FailFast()]

    @property
    def responses(self) -> list[Texts]:
        """The responses as a list."""
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
