"""Requests from clients: OpenAI's, with our settings in a `dise` object."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, Tag, field_validator, model_validator

from dise_app.server.schemas.bodies import (
    TEXT_OR_LIST,
    FastList,
    OpenBody,
    PlainText,
    RequestId,
    Strings,
    TextOrIds,
    TextOrListOf,
    TokenIds,
)
from dise_app.server.schemas.forms import Form, ResponseFormat, StructuredOutputs, refused
from dise_app.server.schemas.neutral import NEUTRAL
from dise_app.server.schemas.tools import EarlierCall, Function, Tool, call_schema
from dise_core.params.base import MAX_LENGTH, LogitBias, Salt, Settings, TokenId
from dise_core.params.requests import Denoising, Ending, SamplingParams, ScoringParams
from dise_core.records import Record

MAX_ANSWERS, MAX_PROMPTS, MAX_CANDIDATES = 64, 256, 256

StopTexts = Annotated[Strings, Field(max_length=16), Tag("is-list")]


class Extensions(Denoising):
    """The `dise` object of a completion request."""

    stream: Literal["text", "canvas"] = "text"
    """Deltas of text, or also every step's canvas."""


class StreamOptions(OpenBody):
    """OpenAI's stream_options, with vLLM's."""

    include_usage: bool = False
    continuous_usage_stats: Literal[False] = False
    include_obfuscation: bool = False


def _neutral(extensions: Record) -> Record:
    """Return Dynamo's extensions. Raises for one that asks for what is not there."""
    for name, value in extensions.items():
        if value and value not in NEUTRAL.get(name, ([], ""))[0]:
            raise refused(name, f"nvext.{name:.80} is not supported: Dynamo heeds it; leave it out")
    return extensions


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
    best_of: int | None = Field(default=None, ge=1, le=MAX_ANSWERS)
    cache_salt: Salt | None = None
    rid: RequestId | None = None
    """SGLang's name for the request: the answer's `id`, and its X-Request-ID."""
    nvext: Annotated[Settings, AfterValidator(_neutral)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    dise: Extensions = Field(default_factory=Extensions)

    @model_validator(mode="before")
    @classmethod
    def _with_newer_names(cls, body: object) -> object:
        """Move vLLM's older guided_... fields into structured_outputs."""
        if not isinstance(body, dict):
            return body
        older = {f"guided_{word}": word for word in ("json", "regex", "choice")}
        forms = {word: body[name] for name, word in older.items() if body.get(name) is not None}
        if forms and body.get("structured_outputs") is not None:
            raise refused("structured_outputs", "structured_outputs and guided_... say the same")
        newer = {name: value for name, value in body.items() if name not in older}
        return newer | {"structured_outputs": forms} if forms else newer

    @property
    def forms(self) -> dict[str, Form | None]:
        """The answer's form by the fields that may ask for one. At most one does."""
        openais, vllms, ours = self.response_format, self.structured_outputs, self.dise
        settings = ours.constraint_settings
        return {
            "response_format": None if openais is None else openais.form,
            "structured_outputs": None if vllms is None else vllms.forms[0],
            "dise.constraint": None if ours.constraint is None else (ours.constraint, settings),
        }

    @property
    def shown_tools(self) -> list[Record]:
        return []

    @property
    def form(self) -> tuple[str, Form] | None:
        """The field that asks what the answer shall be, and what it asks for."""
        return next(((name, form) for name, form in self.forms.items() if form), None)

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        fields = [name for name, form in self.forms.items() if form]
        if len(fields) > 1:
            raise refused(
                fields[0], f"{' and '.join(fields)} each say what the answer is; give one of them"
            )
        return self

    @property
    def settings(self) -> dict[str, object]:
        fields = type(self).model_fields.keys() & SamplingParams.model_fields.keys()
        # These two are not what the library has under the same name.
        values = ((name, getattr(self, name)) for name in fields - {"stop", "logprobs"})
        settings = {name: value for name, value in values if value is not None}
        settings |= self.dise.model_dump(exclude={"stream"}, exclude_unset=True)
        if self.form is not None:
            settings["constraint"], settings["constraint_settings"] = self.form[1]
        return settings

    @property
    def num_prompts(self) -> int:
        return 1

    @property
    def is_gap(self) -> bool:
        """Whether the answer stands before a suffix."""
        return False

    @property
    def num_echoed(self) -> int:
        """The most tokens of prompts that each of the answers repeats."""
        return 0

    @property
    @abstractmethod
    def shown_logprobs(self) -> int | None:
        """How many likely tokens to show for each; None for no log-probabilities."""


class Completion(WritingRequest):
    """The fields that both completion endpoints share."""

    max_tokens: int | None = Field(default=None, ge=1)
    n: int | None = Field(default=None, ge=1, le=MAX_ANSWERS)
    return_token_ids: bool = False
    stop: Annotated[PlainText | StopTexts, TEXT_OR_LIST] | None = None

    @property
    def settings(self) -> dict[str, object]:
        """The library's parameters that the request sets, without empty stop texts."""
        if self.stop is None:
            return super().settings
        stops = [self.stop] if isinstance(self.stop, str) else self.stop
        return {**super().settings, "stop": tuple(filter(None, stops))}


class CompletionRequest(Completion):
    """POST /v1/completions. `prompt`: a text as it is, token ids, or a list of either."""

    prompt: str | TokenIds | Strings | FastList[TokenIds]
    logprobs: int | None = Field(default=None, ge=0, le=20)
    max_tokens: int | None = Field(default=None, ge=0)
    echo: bool = False
    suffix: TextOrIds | None = None
    """What follows the gap that the answer fills; an empty one is none."""
    return_step_maps: bool = False
    """SGLang's: whether to say at which step each token was written."""

    @property
    def prompts(self) -> list[TextOrIds]:
        return _several(self.prompt)

    @property
    def num_prompts(self) -> int:
        return len(self.prompts)

    @property
    def is_gap(self) -> bool:
        return bool(self.suffix)

    @property
    def num_echoed(self) -> int:
        is_repeated = self.echo or self.return_token_ids
        return max_tokens_of(self.prompts) if is_repeated else 0

    @property
    def shown_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def settings(self) -> dict[str, object]:
        """The library's parameters that the request sets. They need one token at least."""
        return super().settings | ({"max_tokens": 1} if self.max_tokens == 0 else {})

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        _check_count("prompt", len(self.prompts), MAX_PROMPTS)
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens=0 writes nothing; with echo it scores the prompt")
        if self.echo and self.stream:
            raise ValueError("echo does not stream; leave one of the two out")
        if self.echo and self.return_step_maps:
            raise ValueError("echo scores a given text, which has no step map; leave one out")
        if self.echo and self.suffix:
            raise ValueError(
                "echo scores what stands before an answer, and a suffix follows it; "
                "leave one of the two out"
            )
        if self.max_tokens == 0 and (self.n or 1, self.best_of or 1) != (1, 1):
            raise ValueError("with max_tokens=0 there is one choice for each prompt; leave out n")
        return self


class ContentPart(OpenBody):
    """One part of a message's content; only text is read."""

    type: str
    text: str

    @field_validator("type", mode="before")
    @classmethod
    def _is_text(cls, kind: object) -> object:
        if isinstance(kind, str) and not kind.endswith("text"):
            raise ValueError("DiSE reads text alone: leave out parts of any other type")
        return kind


class ChatPart(ContentPart):
    """A part of a chat's message."""

    type: Literal["text"]
    prompt_cache_breakpoint: Record | None = None


class ChatMessage(OpenBody):
    """One turn of a conversation; a message of an answer may be sent back as it came."""

    role: str
    content: TextOrListOf[ChatPart] | None = None
    name: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: FastList[EarlierCall] | None = None
    tool_call_id: str | None = None

    def plain(self) -> Record:
        of_tools = self.model_dump(include={"tool_calls", "tool_call_id"}, exclude_none=True)
        return plain_turn(self.role, self.content or "") | of_tools


def plain_turn(role: str, content: str | Sequence[ContentPart]) -> Record:
    """Return a turn in the chat template's format: a developer speaks as the system."""
    text = content if isinstance(content, str) else "".join(part.text for part in content)
    return {"role": "system" if role == "developer" else role, "content": text}


class ChatRequest(Completion):
    """POST /v1/chat/completions."""

    messages: FastList[ChatMessage] = Field(min_length=1, max_length=1024)
    chat_template_kwargs: Settings | None = None
    """vLLM's: variables of the model's chat template, in at most 4,096 characters."""
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    tools: Annotated[FastList[Tool], Field(max_length=128)] = Field(default_factory=list)
    tool_choice: Literal["none", "auto", "required"] | Tool = "auto"

    @property
    def conversation(self) -> list[Record]:
        return [message.plain() for message in self.messages]

    @property
    def chosen(self) -> str | None:
        """The function that the answer must call, if the request chooses one."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, Tool) else None

    @property
    def called(self) -> list[Function]:
        """The functions of which the answer calls one; none for an answer in words."""
        is_any = self.tool_choice == "required"
        functions = (tool.function for tool in self.tools)
        return [function for function in functions if is_any or function.name == self.chosen]

    @property
    def shown_tools(self) -> list[Record]:
        return [tool.model_dump(exclude_none=True) for tool in self.tools] if self.called else []

    @property
    def forms(self) -> dict[str, Form | None]:
        if not self.called:
            return super().forms
        schema = self.called[0].arguments if self.chosen else call_schema(self.called)
        return {"tools": ("json-schema", {"json_schema": schema}), **super().forms}

    @model_validator(mode="after")
    def _calls_what_is_there(self) -> Self:
        if self.tool_choice == "auto" and self.tools:
            raise refused(
                "tool_choice",
                "a model that writes in any order cannot choose half way whether it calls a tool; "
                "set tool_choice to 'required', to one of the functions, or to 'none'",
            )
        if self.tool_choice not in ("auto", "none") and not self.called:
            raise refused("tool_choice", "tool_choice asks for a function that tools do not hold")
        return self

    @property
    def shown_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        self.max_tokens = self.max_completion_tokens or self.max_tokens
        return self


class ScoringRequest(ScoringParams, Ending):
    """Fields of POST /v1/score and /v1/rank. All texts follow the one prompt."""

    model: str | None = None
    prompt: TextOrIds = ""
    chat: bool | None = None

    @property
    @abstractmethod
    def texts(self) -> Sequence[TextOrIds]:
        """What is scored."""

    @property
    def settings(self) -> dict[str, object]:
        return self.model_dump(include=set(ScoringParams.model_fields), exclude_unset=True)


class ScoreRequest(ScoringRequest):
    """POST /v1/score."""

    response: TextOrIds | Strings | FastList[TokenIds]

    @property
    def texts(self) -> list[TextOrIds]:
        return _several(self.response)

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        _check_count("response", len(self.texts), MAX_CANDIDATES)
        return self


class RankRequest(ScoringRequest):
    """POST /v1/rank."""

    candidates: list[TextOrIds] = Field(min_length=1, max_length=MAX_CANDIDATES)

    @property
    def texts(self) -> list[TextOrIds]:
        return self.candidates


def max_tokens_of(texts: Sequence[TextOrIds]) -> int:
    """Return the most tokens that texts may have, as each has a byte at least."""
    return sum(len(text.encode() if isinstance(text, str) else text) for text in texts)


def _check_count(name: str, count: int, maximum: int) -> None:
    if not 1 <= count <= maximum:
        raise ValueError(f"{name}: 1 to {maximum} {name}s, not {count}")


def _several(texts: TextOrIds | list[str] | list[TokenIds]) -> list[TextOrIds]:
    if isinstance(texts, str) or all(isinstance(item, int) for item in texts):
        return [texts]  # type: ignore[list-item]
    return list(texts)  # type: ignore[arg-type]
