"""The options of requests, validated when set. Names are vLLM's where it has one, else LLaDA's."""

from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, field_validator, model_validator

from dise_core.params.base import (
    MAX_LENGTH,
    MAX_STEPS,
    Length,
    LogitBias,
    Name,
    Params,
    Salt,
    Settings,
    Stops,
    TokenIds,
)
from dise_core.params.marks import Mark, Opposite, Replaces
from dise_core.params.objects import (
    LengthLike,
    ReviserLike,
    ScorerLike,
    SelectorLike,
    UnmaskingLike,
)

CHOSEN = ("reviser", "constraint")
"""Options that are left out where no strategy of their kind is wanted."""

CacheKind = Literal["exact", "none", "prefix", "dual"]
"""What denoising caches: what changes no answer, which is the finished blocks of a
block-causal model; nothing; within a block, the text before it, or that on both sides.
Source of the last two: Fast-dLLM.
"""


class Scoring(Params):
    """What a text is scored by. A strategy is given by its name or, in Python, as an
    object, which is used as it is.
    """

    scorer: Annotated[ScorerLike, Replaces(("selector", "selector_settings"))] = "dise"
    """How an answer is scored: `dise` if the model was trained on finished texts; on
    masks alone, `written` for answers and `interleaved` for given texts; `mc` for
    likelihoods; `ar-perplexity` by a judge. `dise plugins` lists those for research."""
    selector: SelectorLike | None = None
    """Over which positions: last-10, response-text for the whole answer, or others, for
    example prompt-last-2+first-5; None is the scorer's own choice."""
    scorer_settings: Annotated[Settings, Mark.RARE] = Field(default_factory=dict)
    """A setting of the scorer."""
    selector_settings: Annotated[Settings, Mark.RARE] = Field(default_factory=dict)
    """A setting of the selector; where it joins several, PART.NAME=VALUE, or by the
    part's name its settings."""
    block_length: Length = 32
    """Tokens in a block of the response. A block-causal model has blocks of its own."""


class ScoringParams(Scoring):
    """How a text is scored, and what is reported beside the score."""

    logprobs: int | None = Field(default=0, ge=0, le=100)
    """Likeliest tokens to report per response position, beside its own; none reports
    neither, which is faster: the model's head then runs only where the score is read."""
    cache_salt: Annotated[Salt | None, Mark.NOT_OF_THE_COMMAND] = None
    """Reuse what is kept of texts' beginnings only among requests of the same salt, a
    text that others cannot guess."""

    @classmethod
    def of(cls, params: Scoring) -> Self:
        """Return the fields of scoring that were set in `params`."""
        names = params.model_fields_set & cls.model_fields.keys()
        return cls(**{name: getattr(params, name) for name in names})


class Ending(Params):
    """Whether given texts end."""

    finished: Annotated[bool | None, Opposite("unfinished")] = None
    """Whether given texts end where they end: an end token follows, which most scorers
    read and no selector takes. Without it a response that is given as text ends, and one
    of token ids, or a candidate, does not: one text then has two scores."""


class Denoising(Scoring):
    """How a response is denoised and scored, in the settings that OpenAI's API has no name for."""

    tokens_per_step: Annotated[Length, Replaces(("steps",), always=True)] = 2
    """Tokens committed in one denoising step; some unmasking policies have their own default."""
    steps: Annotated[int | None, Replaces(("tokens_per_step",), always=True)] = Field(
        default=None, ge=1, le=MAX_STEPS
    )
    """Denoising steps in all, spread over the blocks, instead of tokens_per_step."""
    top_k: Annotated[int, Mark.RARE] = Field(default=0, ge=0, lt=2**31)
    """Draw only from this many of the likeliest tokens; 0 means all."""
    unmasking: UnmaskingLike = Field(
        default="low-confidence", validation_alias=AliasChoices("unmasking", "remasking")
    )
    """Which masks are filled first; see `dise plugins`."""
    unmasking_settings: Annotated[Settings, Mark.RARE] = Field(default_factory=dict)
    """A setting of the unmasking policy."""
    length: LengthLike | None = None
    """How the length is chosen; see `dise plugins`. Without it until-end for a
    block-causal model and fixed for any other."""
    length_settings: Annotated[Settings, Mark.RARE] = Field(default_factory=dict)
    """A setting of the length controller."""
    reviser: Annotated[ReviserLike | None, Mark.RARE] = None
    """What rewrites the tokens of a finished answer that the model doubts; see `dise
    plugins`. Without it the answer stays as it was written."""
    reviser_settings: Annotated[Settings, Mark.RARE] = Field(default_factory=dict)
    """A setting of the reviser."""
    constraint: Annotated[Name | None, Mark.RARE] = None
    """What every answer keeps to, whatever the model would write; see `dise plugins`."""
    constraint_settings: Annotated[Settings, Mark.RARE] = Field(default_factory=dict)
    """A setting of the constraint."""
    cfg_scale: Annotated[float, Mark.RARE] = Field(default=0.0, ge=0, le=1000, allow_inf_nan=False)
    """Scale of classifier-free guidance; 0 turns it off."""
    cache: Annotated[CacheKind, Mark.RARE] = "exact"
    """Which keys and values are kept. exact: those of finished blocks, for block-causal
    models, which changes no answer. prefix, dual: within a block, as Fast-dLLM: faster,
    and approximate; the score is that of an exact pass."""
    forbidden_token_ids: Annotated[TokenIds, Mark.NOT_OF_THE_COMMAND] = Field(
        default=(), max_length=MAX_LENGTH
    )
    """An id that is never written."""
    allowed_token_ids: Annotated[TokenIds, Mark.NOT_OF_THE_COMMAND] = Field(
        default=(), max_length=MAX_LENGTH
    )
    """An id that may be written, and no other may; without one all may."""
    logit_bias: Annotated[LogitBias, Mark.NOT_OF_THE_COMMAND] = Field(default_factory=dict)
    """What is added to a token's logit before it is written, from -100 to 100;
    log-probabilities and confidences stay the model's own."""
    stop_at: Annotated[float | None, Mark.RARE] = Field(default=None, allow_inf_nan=False)
    """Write the best_of answers in waves, first n and then always as many again, until
    one is this sure: a probability of being right with a calibration, else a score."""


class SamplingParams(Denoising, ScoringParams):
    """How a response is generated, and then scored."""

    max_tokens: Length = 128
    """Length of the response's canvas in tokens."""
    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """0 takes the likeliest token; above it, tokens are drawn from softmax(logits/temperature)."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Draw only from the likeliest tokens that hold this much probability together."""
    seed: int | None = Field(default=None, ge=0, lt=2**64)
    """Same seed, same prompt, same answer, whatever runs beside it. If unset, a seed is
    drawn per request and returned with the answer."""
    n: Annotated[int, Replaces(("best_of", "stop_at"))] = Field(default=1, ge=1, le=1024)
    """Answers to return for a prompt, best score first."""
    best_of: Annotated[int | None, Replaces(("stop_at",))] = Field(default=None, ge=1, le=1024)
    """Answers to write, of which the n with the best score are returned; n if not set."""
    stop: Stops = Field(default=(), max_length=64)
    """An answer's text ends before the first of these; its tokens and its score are of
    all that was written."""

    @field_validator("forbidden_token_ids", "allowed_token_ids")
    @classmethod
    def _each_once(cls, ids: TokenIds) -> TokenIds:
        return tuple(dict.fromkeys(ids))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        num_blocks = -(-self.max_tokens // self.block_length)
        if self.steps is not None and self.steps < num_blocks:
            raise ValueError(
                f"steps={self.steps} is less than one step for each of the {num_blocks} blocks"
            )
        for option in CHOSEN:
            if getattr(self, f"{option}_settings") and getattr(self, option) is None:
                raise ValueError(f"{option}_settings need a {option}: name one")
        if "" in self.stop:
            raise ValueError("stop holds an empty text, which every text begins with")
        if self.best_of is not None and self.best_of < self.n:
            raise ValueError(f"best_of={self.best_of} is less than n={self.n}")
        if self.stop_at is not None and self.num_samples == self.n:
            raise ValueError(f"stop_at={self.stop_at} needs a best_of above n={self.n}")
        return self

    @property
    def biases(self) -> tuple[tuple[int, float], ...]:
        """The logit_bias as pairs, by id."""
        return tuple(sorted((int(token), float(bias)) for token, bias in self.logit_bias.items()))

    @property
    def is_drawn(self) -> bool:
        """Whether tokens are drawn; else each is the likeliest."""
        return self.temperature > 0

    @property
    def num_samples(self) -> int:
        """The number of answers that are written."""
        return self.n if self.best_of is None else self.best_of
