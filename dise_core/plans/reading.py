"""What a plan asks (Read) and what it is answered (Reading)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from dise_core.arrays import Floats, Ids, LogProbs, Mask
from dise_core.errors import PlanError, shown
from dise_core.noise import Noise
from dise_core.plans.readouts import Distribution, Readout, TokenLogProbs, TopLogProbs
from dise_core.sequence import TokenSequence, are_within


@dataclass(frozen=True, slots=True, eq=False)
class Guidance:
    """Classifier-free guidance: the unconditional text, int64 [N], and the scale s >= 0.

    Before the readout the logits become u + (s + 1)(c - u), with u those of this text and
    c those of the Read's own. context_ids: the unconditional text's, if the Read has one.
    Source: LLaDA.
    """

    token_ids: Ids
    scale: float
    context_ids: Ids | None = None

    @classmethod
    def without_prompt(cls, text: TokenSequence, masked: Ids, scale: float) -> Self | None:
        """Return the guidance for a text with masks at `masked`, int64 [M], by the same
        text whose whole prompt is masked too; None at scale 0 and without a prompt, where
        it changes nothing.
        """
        if not scale or not text.prompt_length:
            return None
        prompt = np.arange(text.prompt_length)
        ids = text.with_masks(np.concatenate([prompt, masked]))
        return cls(ids, scale, text.with_masks(prompt))


@dataclass(frozen=True, slots=True)
class Canvas:
    """A response being written: which of the request's samples it is, and where in the
    text it starts and stops; stop None: where the text ends.

    is_settled: whether the text before its first mask is final, which no length
    controller or reviser will change. settled: if not None, only the text before this
    position is final, since the policy edits. logprobs: what is known of regenerating the
    response's tokens, float32 [<= R], NaN where nothing is; None where it never is.
    written: the log-probability that each token had when it was committed, float32 [R],
    NaN where unknown.
    """

    sample: int
    start: int
    is_settled: bool = False
    settled: int | None = None
    logprobs: LogProbs | None = field(default=None, compare=False)
    written: LogProbs | None = field(default=None, compare=False)
    stop: int | None = None


class CacheSlot:
    """Identifies one text that a predictor may cache while the slot is in use."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True)
class CacheHint:
    """Permission to cache keys and values, which may make the answers approximate.

    window None: compute the whole text and cache its keys and values; the answers are
    exact. window (start, stop), half-open: outside it the text equals that of the slot's
    last read, so compute only the window against the cached rest. A window that reaches
    the end may change the text's length. Under block-causal attention the window grows to
    whole blocks, and the answers are exact. A guided Read is never cached.
    In canvases no keys are kept, but, by a model that is self-conditioned, what the
    slot's last read predicted, at the temperature of its drawn Candidates: the tokens of
    a window are read beside that, where there is none beside nothing.
    most: the tokens that the text may ever have, 0 if unknown; one that outgrows its room is
    computed whole.
    """

    slot: CacheSlot
    window: tuple[int, int] | None = None
    most: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """One question to a model: what does it predict at these positions of this text?

    token_ids: int64 [N], mask tokens included. positions: int64 [M], each in [0, N).
    Position i is answered with the model's distribution for the token AT i. `predictor`
    names the loaded model that answers. `canvas` is for streaming and changes no answer.
    `cache`: see CacheHint.

    context_ids: the finished text, int64 [N], where token_ids hold masks. Under
    block-causal attention each block is then read after the finished earlier ones, and so
    is each canvas; any other attention ignores it. shadow: answer each position as if it
    alone were masked, without masking it for the others: its own mask token, which no
    other token sees, attends to all of the text that the position may see, but for the
    token at it.
    is_complete: whether no end tokens follow a text that ends inside a block up to the
    block's border. cache_salt: keys and values of a text's beginning are reused by texts
    of the same salt alone. noise: for a time-conditioned model, the share of hidden
    positions among those that are written, in [0, 1], from which its adapter makes its
    own time; None: see `noise_levels`. draws: what draws the tokens there under uniform
    noise; None as Noise(0). start: where canvases begin, the length of the prompt; models
    without canvases ignore it. Raises PlanError for parts that do not fit together.
    """

    token_ids: Ids
    positions: Ids
    readout: Readout
    predictor: str = "target"
    guidance: Guidance | None = None
    canvas: Canvas | None = None
    cache: CacheHint | None = None
    context_ids: Ids | None = None
    shadow: bool = False
    is_complete: bool = False
    cache_salt: str = field(default="", repr=False)
    noise: float | None = None
    draws: Noise | None = None
    start: int = 0

    def __post_init__(self) -> None:
        length = _length("token_ids", self.token_ids)
        num_positions = _length("positions", self.positions)
        if not are_within(self.positions, length):
            raise PlanError(f"a Read asks for positions outside 0..{length - 1}: {self.positions}")
        if self.guidance is not None:
            guiding = _length("token_ids of guidance", self.guidance.token_ids)
            if guiding != length:
                raise PlanError(f"a Read of {length} tokens is guided by one of {guiding}")
        if self.context_ids is not None or self.shadow:
            self._check_streams(length)
        if self.noise is not None and not 0 <= self.noise <= 1:
            raise PlanError(f"a Read's noise is a share in 0..1, not {self.noise}")
        if not 0 <= self.start <= length:
            raise PlanError(f"a Read's canvases start in 0..{length}, not at {self.start}")
        readout = self.readout
        if isinstance(readout, TokenLogProbs | TopLogProbs) and readout.targets is not None:
            num_targets = _length("targets", readout.targets)
            if num_targets != num_positions:
                raise PlanError(f"a Read has {num_positions} positions but {num_targets} targets")

    def answer_shape(self, vocab_size: int) -> tuple[int, ...]:
        """Return the shape of the log-probabilities that answer it."""
        match self.readout:
            case TopLogProbs() as readout:
                return len(self.positions), readout.width(vocab_size)
            case Distribution():
                return len(self.positions), vocab_size
            case _:
                return (len(self.positions),)

    def _check_streams(self, length: int) -> None:
        """Raise PlanError for another context length, or a cache or shadow beside it."""
        context = self.context_ids
        is_other = context is not None and not np.array_equal(context, self.token_ids)
        if self.cache is not None and (is_other or self.shadow):
            raise PlanError("a Read with context_ids, or of shadows, cannot be cached")
        if context is None:
            return
        contexts = [self.context_ids] + ([self.guidance.context_ids] if self.guidance else [])
        for context in contexts:
            if (num_tokens := _length("context_ids", context)) != length:
                raise PlanError(f"a Read of {length} tokens has a context of {num_tokens}")
        if self.shadow:
            raise PlanError("a Read of shadows has no context_ids: its text is finished")


def checked_reads(name: str, reads: object, plugin: str | None = None) -> Sequence[Read]:
    """Return what a plan yields. name: what the PlanError for anything else calls the plan;
    plugin: the one at fault.
    """
    # Asked of a list first: whether something is a Sequence takes ten times as long to
    # tell.
    if isinstance(reads, (list, Sequence)) and all(isinstance(read, Read) for read in reads):
        return reads
    raise PlanError(
        f"{name} must yield a list of Reads, as in `yield [Read(...)]`, not "
        f"{type(reads).__name__}: {shown(reads)}",
        plugin,
    )


def _length(name: str, ids: object) -> int:
    if not isinstance(ids, np.ndarray) or ids.dtype != np.int64 or ids.ndim != 1:
        raise PlanError(f"the {name} of a Read must be int64 [N], not {shown(ids)}")
    return len(ids)


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The answer to one Read: tokens, and their log-probabilities in nats.

    token_ids int64 and logprobs float32: [M], [M, k] or [M, V], by readout. confidences:
    float64 [M] for Candidates, and for TopLogProbs with entropies, else empty. share: the
    share of the text's positions that was computed for this Read; the rest was cached, or
    changes no answer.
    num_reused: tokens at the text's start that an earlier text had computed. is_exact:
    whether the answer is that of a full pass.
    is_known: bool [M], which answers an earlier pass had given; empty where none had.
    """

    token_ids: Ids
    logprobs: LogProbs
    confidences: Floats = field(default_factory=lambda: np.zeros(0))
    share: float = 1.0
    is_exact: bool = True
    num_reused: int = 0
    is_known: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))

    @classmethod
    def empty(cls) -> Self:
        """Return the answer to a Read of no position."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.float32))

    def at(self, rows: Mask) -> Self:
        """Return the answers where rows, bool [M], is True. For Candidates."""
        return replace(
            self,
            token_ids=self.token_ids[rows],
            logprobs=self.logprobs[rows],
            confidences=self.confidences[rows],
        )
