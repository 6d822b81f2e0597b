"""What a Read asks for at each position: readouts, computed where the logits are."""

from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import numpy as np
from pydantic import FiniteFloat

from dise_core.arrays import Ids, Mask
from dise_core.errors import PlanError
from dise_core.noise import Noise

Confidence = Literal["probability", "entropy", "margin"]
"""What a candidate's confidence is: its probability, minus the distribution's entropy, or
its probability less the second candidate's.
"""

BiasPairs = tuple[tuple[int, FiniteFloat], ...]
"""Token ids, each with what is added to its logit."""

LEAST_TEMPERATURE = 1e-6
"""The least temperature that is divided by; with it the likeliest token is drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenLogProbs:
    """Ask for log p(targets[i]) at positions[i]. targets: int64 [M].

    The Reading repeats the targets and holds logprobs float32 [M]: of a token that
    dominates by the others' share, so that 1 - p = 1e-12 is not rounded to 0.
    """

    targets: Ids

    def at(self, rows: Mask) -> Self:
        """Return the question about the positions where rows, bool [M], is True."""
        return replace(self, targets=self.targets[rows])


DRAWING = ("temperature", "top_p", "top_k")
"""The settings of Candidates by which a token is drawn, which requests set by these names."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Ask for one candidate token per position, and for the model's confidence in it.

    At temperature 0 the candidate is the most probable token; the lower id wins a tie.
    Otherwise it is drawn from softmax(logits / temperature) after top-k, then top-p, by
    inverting the cumulative distribution at one uniform number per position. `forbidden`
    ids are never candidates; if there are `allowed` ids, nor are any others. bias: (id,
    b) pairs; the candidate, but not its log-probability or confidence, comes from logits
    with b added at id. The Reading holds token_ids [M], logprobs [M] and confidences [M],
    of the untempered softmax(logits); a confidence is the "probability" of the candidate,
    the negative "entropy" in nats, or the "margin" between the probabilities of the two
    likeliest tokens.

    is_tempered: take the confidences from what candidates are drawn from instead, at
    temperature 0 too. Source: Dream's sample_tokens. unranked: ids whose logits count as
    -inf for the confidences; a candidate among them gets the lowest one. Source: LLaDA's
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
    allowed: tuple[int, ...] = ()
    bias: BiasPairs = ()

    def __post_init__(self) -> None:
        if self.is_drawn and self.noise is None:
            raise PlanError("Candidates with a temperature need noise")

    @property
    def is_drawn(self) -> bool:
        """Whether tokens are drawn; else each is the likeliest."""
        return self.temperature > 0

    @property
    def divisor(self) -> float:
        """The divisor of logits for drawn tokens and tempered confidences."""
        return max(self.temperature, LEAST_TEMPERATURE) if self.is_drawn else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class TopLogProbs:
    """Ask for the k likeliest tokens per position, likeliest first, then for the tokens
    `ids`, then for the position's own target. targets: int64 [M], or None.

    The Reading holds token_ids and logprobs of softmax(logits), both [M, min(k, V) +
    len(ids) + 1], one less without targets; a token may stand there twice. with_entropy:
    its confidences are the negative entropies in nats.
    """

    k: int
    ids: tuple[int, ...] = ()
    targets: Ids | None = None
    with_entropy: bool = False

    @property
    def num_named(self) -> int:
        """The number of tokens asked for by name at each position."""
        return len(self.ids) + (self.targets is not None)

    def width(self, vocab_size: int) -> int:
        """Return the number of tokens reported at each position."""
        return min(self.k, vocab_size) + self.num_named

    def named(self, num_positions: int) -> Ids:
        """Return the tokens behind the likeliest ones, int64 [M, num_named]."""
        ids = np.tile(np.array(self.ids, np.int64), (num_positions, 1))
        return ids if self.targets is None else np.column_stack([ids, self.targets])


@dataclass(frozen=True, slots=True)
class Distribution:
    """Ask for the whole distribution: logprobs and token_ids [M, V]. In process only."""


Readout = TokenLogProbs | Candidates | TopLogProbs | Distribution
"""What a Read asks for at its positions, to be computed where the logits are."""

READOUTS: frozenset[type[Readout]] = frozenset(get_args(Readout))
"""All kinds of readouts."""


def named_ids(readout: Readout) -> tuple[Ids, ...]:
    """Return the token ids that a readout asks for by name, int64 [N] each."""
    ids: tuple[Ids, ...] = ()
    if isinstance(readout, TokenLogProbs | TopLogProbs) and readout.targets is not None:
        ids = (readout.targets,)
    if isinstance(readout, TopLogProbs):
        ids = (np.array(readout.ids, np.int64), *ids)
    return ids


def has_confidences(readout: Readout) -> bool:
    """Return whether the Reading holds a confidence for each position."""
    return isinstance(readout, Candidates) or (
        isinstance(readout, TopLogProbs) and readout.with_entropy
    )
