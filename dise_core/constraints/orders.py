"""What requests need built of their constraints: the automata over a model's tokens."""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from dise_core.constraints.building import Source, Stop, build
from dise_core.constraints.child import SLOW
from dise_core.constraints.constraint import Constraint
from dise_core.constraints.kept import KEPT
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.errors import OverloadedError
from dise_core.models.info import ModelInfo
from dise_core.models.predictor import MaskPredictor
from dise_core.models.tokenizer import Tokenizer
from dise_core.params.requests import SamplingParams

MAX_ALIVE = 2**30
"""Bytes of automata that requests under way may use, beyond which no more are built."""


@dataclass(frozen=True, slots=True)
class Order:
    """What one request needs built. unwritten: tokens that it never writes. num_masks:
    its length, if no end token may end it; else 0. is_told: whether scores are
    renormalised over what it allows.
    """

    source: Source
    tokenizer: Tokenizer
    info: ModelInfo
    unwritten: frozenset[int]
    num_masks: int
    is_told: bool = False
    is_json: bool = False

    @classmethod
    def of(
        cls, constraint: Constraint, params: SamplingParams, predictor: MaskPredictor
    ) -> "Order":
        """Return a request's order. Raises InputError for what cannot be used."""
        info = predictor.info
        eos_id, masking_id = info.special.eos_id, info.special.masking_id
        end = {eos_id} if params.logits_eos_inf and eos_id is not None else set()
        unwritten = frozenset({masking_id, *params.forbidden_token_ids, *end})
        can_end = eos_id is not None and eos_id not in unwritten
        length = 0 if can_end else params.max_tokens
        return cls(
            Source.of(constraint),
            predictor.tokenizer,
            info,
            unwritten,
            length,
            predictor.tells_among,
            constraint.is_json,
        )

    @property
    def key(self) -> Hashable:
        """A short name that differs for whatever must be built anew."""
        ids = np.array(sorted(self.unwritten), np.int64).tobytes()
        unwritten = hashlib.sha256(ids).digest()
        return self.source.key, self.tokenizer, self.info.special, unwritten, self.info.vocab_size

    def kept(self) -> TokenAutomaton | None:
        """Return what is built already, None if something is not."""
        tokens = KEPT.get(TokenAutomaton, self.key)
        if tokens is None or not tokens.knows(self.num_masks):
            return None
        return tokens if tokens.knows_ways or not self.is_told else None

    def built(self, lane: int = SLOW, stop: Stop | None = None) -> TokenAutomaton:
        """Return it, built now if it is not. Raises what `build` raises, and InputError
        for what the model's tokens cannot spell, or not in that length.
        """
        tokens = KEPT.get(TokenAutomaton, self.key)
        if tokens is None:
            if KEPT.num_bytes_alive > MAX_ALIVE:
                raise OverloadedError(
                    f"the constraints of requests under way fill {MAX_ALIVE >> 20} MiB; "
                    "try again later"
                )
            automaton, info = build(self.source, lane, stop), self.info
            tokens = TokenAutomaton(
                automaton, self.tokenizer, info.special, self.unwritten, info.vocab_size
            )
        tokens.feasible(self.num_masks)
        if self.is_told:
            tokens.find_ways(stop)  # here, where nobody else waits
        KEPT.put(self.key, tokens)
        return tokens
