"""The options that users may set, validated when set. Names are vLLM's where it has one, else
LLaDA's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from dise_core.biases import LogitBias
from dise_core.engine_options import DeviceMap, Dtype, Quantization, check_devices, check_vllm
from dise_core.errors import InputError, did_you_mean
from dise_core.reading import CacheKind
from dise_core.records import Record

MAX_LENGTH = 2**20
"""Tokens of a text, a block or a step: more than any model reads."""

MAX_STEPS = 2**16
"""Denoising steps of a response. Those beyond its tokens are skipped, or commit at random."""

MAX_SAMPLES = 1024
"""Answers to one prompt that exist at one time."""

MAX_NAME = 1000
"""Characters of a name, and of a union of selectors."""

MAX_STOPS, MAX_STOP = 64, 1000
"""Stop texts, and the characters of one."""

Name = Annotated[str, StringConstraints(max_length=MAX_NAME)]
Length = Annotated[int, Field(ge=1, le=MAX_LENGTH)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]

if TYPE_CHECKING:  # what may be given: kept as tuples
    TokenIds = Sequence[int]
    Stops = Sequence[str]
else:
    TokenIds = tuple[TokenId, ...]
    Stops = tuple[Annotated[str, StringConstraints(max_length=MAX_STOP)], ...]

Settings = Record
"""Settings of a strategy, by the names of its fields."""


UNKNOWN = "unknown_name"
"""The type of pydantic's problem with a name that no field has."""


class Suggesting(BaseModel):
    """Suggests the nearest field for a name that no field has, if that is the first problem, fields
    that are missing apart.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _suggest(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(given)
        except ValidationError as error:
            problems = error.errors(include_url=False)
            problem = next((each for each in problems if each["type"] != "missing"), problems[0])
            if problem["type"] != "extra_forbidden" or len(problem["loc"]) > 1:
                raise
            name = str(problem["loc"][0])
            shown, hint = f"{name:.80}", did_you_mean(name, _names(cls))
            said = {"name": shown, "quoted": repr(shown), "hint": hint}
            raise PydanticCustomError(
                UNKNOWN, "there is no setting {quoted}{hint}", said
            ) from error


def _names(cls: type[BaseModel]) -> list[str]:
    """Return the names that a model's fields go by."""
    aliases = (field.validation_alias for field in cls.model_fields.values())
    choices = (alias.choices for alias in aliases if isinstance(alias, AliasChoices))
    return sorted({*cls.model_fields, *(str(name) for its in choices for name in its)})


class Params(Suggesting):
    """Frozen; unknown keys are refused. `input_error` turns pydantic's report into one line.

    The text below a field is its description at every door: the command's help, the server's
    schema.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )

    if not TYPE_CHECKING:

        def __init__(self, **fields: object) -> None:
            """Raises InputError for the first field that is not allowed."""
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise input_error(error) from error

        # For pydantic this is its own constructor: params inside other models keep its own errors.
        __init__.__pydantic_base_init__ = True


class Scoring(Params):
    """What a text is scored by."""

    scorer: Name = "dise"
    """How an answer is scored; see `dise plugins`."""
    selector: Name | None = None
    """Over which positions, for example response, last-10, prompt-last-2+response-first-5; None is
    the scorer's own choice."""
    scorer_settings: Settings = Field(default_factory=dict)
    """A setting of the scorer."""
    block_length: Length = 32
    """Tokens in a block of the response. A block-causal model has blocks of its own."""


class ScoringParams(Scoring):
    """How a text is scored, and what is reported beside the score."""

    logprobs: int | None = Field(default=0, ge=0, le=100)
    """Likeliest tokens to report per response position, beside its own; none reports neither, which
    is faster: the model's head then runs only where the score is read."""

    @classmethod
    def of(cls, params: Scoring) -> ScoringParams:
        """Return the fields of scoring that were set in `params`."""
        return cls(**params.model_dump(include=set(cls.model_fields), exclude_unset=True))


class DecisionParams(Params):
    """How typed questions about an input are asked."""

    joint: bool = False
    """Ask all questions in one text, which is one sequence in a forward pass, instead of each in a
    text of its own, where no answer depends on the other questions. Questions that do not fit into
    one text are asked apart, and a warning says so."""
    layout: Literal["questions", "cloze"] = "questions"
    """questions: numbered, with their possible answers, after the input. cloze: nothing is added;
    each question's instructions are the text right before its slot."""


class Denoising(Scoring):
    """How a response is denoised and scored, in the settings that OpenAI's API has no name for."""

    tokens_per_step: Length = 2
    """Tokens committed in one denoising step; some unmasking policies have a default of their own.
    """
    steps: int | None = Field(default=None, ge=1, le=MAX_STEPS)
    """Denoising steps in all, spread over the blocks, instead of tokens_per_step."""
    eps: float | None = Field(default=None, gt=0, lt=1)
    """Dream's schedule: the steps are even in diffusion time, which falls from 1 to eps, instead of
    in tokens."""
    top_k: int = Field(default=0, ge=0, lt=2**31)
    """Draw only from this many of the likeliest tokens; 0 means all."""
    unmasking: Name = Field(
        default="low-confidence", validation_alias=AliasChoices("unmasking", "remasking")
    )
    """Which masks are filled first; see `dise plugins`."""
    unmasking_settings: Settings = Field(default_factory=dict)
    """A setting of the unmasking policy."""
    length: Name | None = None
    """How the length is chosen; see `dise plugins`. Without it until-end for a block-causal model
    and fixed for any other."""
    length_settings: Settings = Field(default_factory=dict)
    """A setting of the length controller."""
    reviser: Name | None = None
    """What rewrites the tokens of a finished answer that the model doubts; see `dise plugins`.
    Without it the answer stays as it was written."""
    reviser_settings: Settings = Field(default_factory=dict)
    """A setting of the reviser."""
    cfg_scale: float = Field(default=0.0, ge=0, le=1000, allow_inf_nan=False)
    """Scale of classifier-free guidance; 0 turns it off."""
    cache: CacheKind = "exact"
    """Which keys and values are kept. exact: those of finished blocks, for block-causal models,
    which changes no answer. prefix, dual: within a block, as Fast-dLLM: faster, and approximate;
    the score is that of an exact pass."""
    early_exit: float | None = Field(default=None, gt=0, le=1)
    """End an answer where all that is left would be end tokens, each with more than this
    probability."""
    forbidden_token_ids: TokenIds = Field(default=(), max_length=MAX_LENGTH)
    """An id that is never written."""
    allowed_token_ids: TokenIds = Field(default=(), max_length=MAX_LENGTH)
    """An id that may be written, and no other may; without one all may."""
    logit_bias: LogitBias = Field(default_factory=dict)
    """What is added to a token's logit before it is written, from -100 to 100; log-probabilities
    and confidences stay the model's own."""
    logits_eos_inf: bool = False
    """Never write the end token, and leave it out of the confidences, as LLaDA's option."""
    confidence_eos_eot_inf: bool = False
    """Commit end tokens last: they count for nothing in the confidences, as LLaDA's option."""
    tempered_confidence: bool | None = None
    """Rank candidates after temperature, top_p and top_k, as Dream, or before, as LLaDA; without it
    as the model's own sampler."""
    stop_at: float | None = Field(default=None, allow_inf_nan=False)
    """Write the best_of answers in waves, first n and then always as many again, until one is this
    sure: a probability of being right with a calibration, else a score."""


class SamplingParams(Denoising, ScoringParams):
    """How a response is generated, and then scored."""

    max_tokens: Length = 128
    """Length of the response's canvas in tokens."""
    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """0 takes the likeliest token; above it, tokens are drawn from softmax(logits / temperature).
    """
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Draw only from the likeliest tokens that hold this much probability together."""
    seed: int | None = Field(default=None, ge=0, lt=2**64)
    """Same seed, same prompt, same answer, whatever runs beside it. Without one each request draws
    its own, and tells it."""
    n: int = Field(default=1, ge=1, le=MAX_SAMPLES)
    """Answers to return for a prompt, best score first."""
    best_of: int | None = Field(default=None, ge=1, le=MAX_SAMPLES)
    """Answers to write for a prompt, of which the n with the best score are returned; n if not set.
    """
    stop: Stops = Field(default=(), max_length=MAX_STOPS)
    """An answer's text ends before the first of these; its tokens and its score are of all that was
    written."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        num_blocks = -(-self.max_tokens // self.block_length)
        if self.steps is not None and self.steps < num_blocks:
            raise ValueError(
                f"steps={self.steps} is less than one step for each of the {num_blocks} blocks"
            )
        if self.reviser_settings and self.reviser is None:
            raise ValueError("reviser_settings need a reviser: name one")
        if "" in self.stop:
            raise ValueError("stop holds an empty text, which every text begins with")
        if self.best_of is not None and self.best_of < self.n:
            raise ValueError(f"best_of={self.best_of} is less than n={self.n}")
        if self.stop_at is not None and self.num_samples == self.n:
            raise ValueError(f"stop_at={self.stop_at} needs a best_of above n={self.n}")
        return self

    @property
    def num_samples(self) -> int:
        """How many responses are generated."""
        return self.n if self.best_of is None else self.best_of


THE_MODELS_OWN = ("revision", "adapter", "mask_token_id", "block_size", "device_map", "max_memory",
                  "quantization")  # fmt: skip
"""Options that apply to the model but not to its judge."""


class EngineConfig(Params):
    """How a model is loaded and how much of it runs at once."""

    max_num_seqs: int = Field(default=64, ge=1, le=2**16)
    """The most sequences in one forward pass."""
    max_batch_tokens: int = Field(default=16384, ge=1, le=2**24)
    """The most tokens in one forward pass."""
    device: str = "auto"
    """A torch device; "auto" takes a GPU if there is one."""
    dtype: Dtype = "auto"
    """Type of the weights; "auto" is bfloat16 on a GPU and float32 on a CPU."""
    device_map: DeviceMap | None = None
    """Spread the model's layers over all GPUs, then main memory, then the disk, in accelerate's way
    of that name. Without it the model is on `device` alone, which is faster where it fits."""
    max_memory: Settings = Field(default_factory=dict)
    """The most memory of a device that device_map may use, for example 0=20GiB or cpu=30GiB."""
    quantization: Quantization | None = None
    """Keep the decoder's linear layers, not its embeddings and head, as integers of 8 or 4 bits, by
    torchao. Saves memory at a loss of precision."""
    judge_device: str | None = None
    """The judge's device, where it is not the model's."""
    judge_dtype: Dtype | None = None
    """The type of the judge's weights, where it is not the model's."""
    attn_implementation: str = "sdpa"
    """Attention of transformers: "sdpa" ("eager" for a class that lacks it), "eager",
    "flash_attention_2", ...
    """
    revision: str | None = None
    """Branch, tag or commit of a model on the hub."""
    adapter: str | None = None
    """Name of the adapter that loads the model, whichever claim it; None asks them. A judge finds
    its own.
    """
    mask_token_id: TokenId | None = None
    """The id of the mask token, for a checkpoint that does not name it."""
    block_size: Annotated[int, Field(ge=0, le=MAX_LENGTH)] | None = None
    """Tokens in a block of a block-diffusion model, for a checkpoint that does not say; 0 for full
    attention."""
    engine: str = "transformers"
    """What runs the model's forward passes; see `dise plugins`."""
    tensor_parallel_size: int = Field(default=1, ge=1, le=1024)
    """GPUs, or CPU ranks, over which vLLM spreads the model."""
    vllm_options: Settings = Field(default_factory=dict)
    """A further argument of vLLM's own LLM, for example gpu_memory_utilization."""
    max_cache_tokens: int | None = Field(default=None, ge=1, le=2**24)
    """Tokens whose keys and values are kept for requests with a cache, all together; texts beyond
    wait for room. More than the device has memory for are refused. Without it 16384, or as many as
    fit.
    """
    calibration: str | None = None
    """A file that `dise calibrate` wrote: every answer then tells its probability of being right,
    and scores are computed as the file says where a request does not say otherwise.
    """

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        check_vllm(self.engine, self.model_dump(exclude_defaults=True))
        check_devices(self.device, self.device_map, self.max_memory, self.quantization)
        return self

    def for_judge(self) -> Self:
        """Return the options of the judge: these, without THE_MODELS_OWN, and on its own device in
        its own type where they are said.
        """
        fields = self.model_dump(exclude={*THE_MODELS_OWN, "judge_device", "judge_dtype"})
        said = {"device": self.judge_device, "dtype": self.judge_dtype}
        return type(self)(**fields | {name: each for name, each in said.items() if each})


def place_of(problem: Mapping[str, Any]) -> tuple[str | int, ...]:
    """Return where one of pydantic's problems is: its place, with the name that our own tell."""
    name = problem.get("ctx", {}).get("name")
    return problem["loc"] if name is None else (*problem["loc"], name)


def input_error(
    error: ValidationError, subject: str | None = None, known: Collection[str] = ()
) -> InputError:
    """Return an InputError for a pydantic error's first problem; its one-line message names the
    parameter, the value and what is allowed. known: the settings that there are.
    """
    problem = error.errors(include_url=False)[0]
    parameter = ".".join(str(part) for part in place_of(problem)) or None
    message = problem["msg"].removeprefix("Value error, ")
    origin = f"{subject}: " if subject else ""
    if problem["type"] == UNKNOWN:
        return InputError(f"{origin}{message}", parameter)
    if problem["type"] == "extra_forbidden":
        hint = did_you_mean(parameter or "", known)
        listed = f"{hint or '.'} Known: {', '.join(sorted(known)) or 'none'}" if subject else ""
        return InputError(f"{origin}there is no setting {parameter!r}{listed}", parameter)
    value = f"{parameter}={problem['input']!r:.80}: " if parameter else ""
    return InputError(f"{origin}{value}{message}", parameter)
