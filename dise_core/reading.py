"""What a plan asks (Read), what it hears (Reading), and how plans compose.

An algorithm is a generator that yields the Reads it needs and is sent their Readings. It does no
I/O, holds no tensor and knows no batch, so an engine may run any number of them at once, and a
framework with a loop of its own may drive one itself:

    reads = next(plan)
    while True:
        reads = plan.send(my_model(reads))      # ends with StopIteration; its value is the result
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from operator import methodcaller
from typing import Literal, TypeVar

import numpy as np

from dise_core.arrays import Floats, Ids, LogProbs, Mask
from dise_core.errors import PlanError
from dise_core.noise import Noise
from dise_core.sequence import TokenSequence

T = TypeVar("T")

Confidence = Literal["probability", "entropy", "margin"]

CacheKind = Literal["none", "prefix", "dual"]
"""What denoising caches within a block: nothing, what stands before the block, or all but the
block. Source: Fast-dLLM.
"""


@dataclass(frozen=True, slots=True, eq=False)
class TokenLogProbs:
    """Ask for log p(targets[i]) at positions[i]. targets: int64 [M].

    The Reading repeats the targets and holds logprobs float32 [M].
    """

    targets: Ids


@dataclass(frozen=True, slots=True)
class Candidates:
    """Ask for one candidate token per position and how confident the model is of it.

    The candidate is the most probable token (temperature 0; the lower id wins a tie) or is drawn
    from softmax(logits / temperature) after top-k, then top-p, by inverting its cumulative
    distribution at one uniform number per position. `forbidden` ids are never candidates. The
    Reading holds token_ids [M], their logprobs and the confidences [M], both under softmax(logits)
    as it is, untempered: "probability" of the candidate, "entropy" (negative, in nats), or "margin"
    (probability of the likeliest token minus that of the second).

    is_tempered: the confidences are those of the distribution that candidates are drawn from
    instead: forbidden ids left out, tempered, top-k and top-p applied, at temperature 0 too.
    Source: Dream's sample_tokens. unranked: ids that count as logits of -inf for the confidences; a
    candidate among them has the lowest there is, -inf, or 0 as a probability. Source: LLaDA's
    confidence_eos_eot_inf.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    noise: Noise | None = None
    confidence: Confidence = "probability"
    forbidden: tuple[int, ...] = ()
    is_tempered: bool = False
    unranked: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.temperature > 0 and self.noise is None:
            raise PlanError("Candidates with a temperature need noise")


@dataclass(frozen=True, slots=True)
class TopLogProbs:
    """Ask for the k likeliest tokens per position, likeliest first: token_ids [M, k], logprobs [M,
    k].
    """

    k: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """Ask for the whole distribution: logprobs and token_ids [M, V]. For analyses, in
    process only.
    """


Readout = TokenLogProbs | Candidates | TopLogProbs | Distribution


@dataclass(frozen=True, slots=True, eq=False)
class Guidance:
    """Classifier-free guidance: the same text without its condition, int64 [N], and the scale s >=
    0.

    The logits become u + (s + 1)(c - u), u from this row and c from the Read's own, before the
    readout. Source: LLaDA.
    """

    token_ids: Ids
    scale: float

    @classmethod
    def without_prompt(cls, text: TokenSequence, masked: Ids, scale: float) -> Guidance | None:
        """Return the guidance of a text that is masked at some positions by the same text with its
        whole prompt masked too.

        masked: int64 [M]. None at scale 0, and for a text without a prompt: both rows would be one
        text, whose logits guidance leaves as they are. Raises InputError if the model has no mask
        token.
        """
        if not scale or not text.prompt_length:
            return None
        return cls(text.with_masks(np.concatenate([np.arange(text.prompt_length), masked])), scale)


@dataclass(frozen=True, slots=True)
class Canvas:
    """A response under way: which of a request's samples it is, and where in the text it starts.

    is_settled: whether what stands before its first mask never changes again. False where a length
    controller may write it once more, or put another text in its place.
    """

    sample: int
    start: int
    is_settled: bool = False


class CacheSlot:
    """Names what a predictor may cache of one text from read to read. What it caches goes when the
    last reference goes.
    """

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True)
class CacheHint:
    """Leave to cache keys and values, which may make the answers approximate. A predictor without a
    cache ignores it.

    window None: run the text whole and cache what comes; the answers are exact. window (start,
    stop): outside it the text is that of the slot's last read, so run these tokens against what is
    cached of the others. A window up to the end of the text may make it longer or shorter. A guided
    Read caches nothing.
    """

    slot: CacheSlot
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """One row of one forward pass: what does the model say at these positions of this text?

    token_ids: int64 [N], mask tokens included. positions: int64 [M], each in [0, N). Position i is
    answered with the model's distribution for the token AT i. `predictor` names the loaded model
    that answers. `canvas` tells those who watch a response being written what this text is; it
    changes no answer. `cache`: see CacheHint.
    """

    token_ids: Ids
    positions: Ids
    readout: Readout
    predictor: str = "target"
    guidance: Guidance | None = None
    canvas: Canvas | None = None
    cache: CacheHint | None = None

    def __post_init__(self) -> None:
        if len(self.positions) and not 0 <= self.positions.min() <= self.positions.max() < len(
            self.token_ids
        ):
            raise PlanError(
                f"a Read asks for positions outside 0..{len(self.token_ids) - 1}: {self.positions}"
            )
        if self.guidance is not None and len(self.guidance.token_ids) != len(self.token_ids):
            raise PlanError(
                f"a Read of {len(self.token_ids)} tokens is guided by one of "
                f"{len(self.guidance.token_ids)}"
            )
        if isinstance(self.readout, TokenLogProbs) and len(self.readout.targets) != len(
            self.positions
        ):
            raise PlanError(
                f"a Read has {len(self.positions)} positions but {len(self.readout.targets)} "
                "targets"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The answer to one Read: tokens, and their log-probabilities in nats, shaped as the readout
    says.

    token_ids and logprobs: [M] or [M, k]; confidences: float64 [M] for Candidates, else empty.
    share: of the text's positions that were computed for it; below 1 the rest was cached by an
    earlier read. is_exact: whether the answer is that of a pass over the whole text.
    """

    token_ids: Ids
    logprobs: LogProbs
    confidences: Floats = field(default_factory=lambda: np.zeros(0))
    share: float = 1.0
    is_exact: bool = True

    @classmethod
    def of_nothing(cls) -> Reading:
        """Return the answer to a Read of no position."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.float32))

    def at(self, rows: Mask) -> Reading:
        """Return the answers to some of the positions; rows: bool [M]. For Candidates."""
        return replace(
            self,
            token_ids=self.token_ids[rows],
            logprobs=self.logprobs[rows],
            confidences=self.confidences[rows],
        )


Plan = Generator[Sequence[Read], Sequence[Reading], T]
"""An algorithm: yields Reads, is sent one Reading for each in the same order, returns T. Reads
yielded together may share a batch, and Reads of the same text share one row of it.
"""


def gather(*plans: Plan[T]) -> Plan[list[T]]:
    """Run plans side by side: what they ask at the same time travels together. Returns their
    results in order.

    If one raises, the others are closed and the error goes on. A failed read is raised in each of
    the plans that wait.
    """
    results: dict[int, T] = {}
    waiting: dict[int, Sequence[Read]] = {}

    def advance(index: int, step: Callable[[Plan[T]], Sequence[Read]]) -> None:
        try:
            waiting[index] = step(plans[index])
        except StopIteration as stop:
            waiting.pop(index, None)
            results[index] = stop.value

    try:
        for index in range(len(plans)):
            advance(index, next)
        while waiting:
            try:
                readings = yield [read for reads in waiting.values() for read in reads]
            except Exception as error:
                for index in list(waiting):
                    advance(index, methodcaller("throw", error))
                continue
            start = 0
            for index, reads in list(waiting.items()):
                advance(index, methodcaller("send", readings[start : start + len(reads)]))
                start += len(reads)
    finally:
        for plan in plans:
            plan.close()
    return [results[index] for index in range(len(plans))]


def drive(plan: Plan[T], read: Callable[[Sequence[Read]], Sequence[Reading]]) -> T:
    """Run one plan to its end with a function that answers Reads, and return its result."""
    try:
        reads = next(plan)
        while True:
            reads = plan.send(read(reads))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        plan.close()
