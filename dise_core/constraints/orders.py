"""What requests need built of their constraints: the automata over a model's tokens."""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from dise_core.constraints.building import Source, Stop, build
from dise_core.constraints.constraint import Constraint
from dise_core.constraints.kept import KEPT
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.errors import OverloadedError
from dise_core.models.predictor import MaskPredictor
from dise_core.params.requests import SamplingParams
from dise_core.sequence import SpecialTokens

MAX_ALIVE = 2**30
"""Bytes of automata that requests under way may use, beyond which no more are built."""


@dataclass(frozen=True, slots=True)
class Order:
    """What one request needs built. unwritten: tokens that it never writes. num_masks:
    its length, if no end token may end it; else 0. salt: only requests of the same share
    what is built.
    """

    source: Source
    predictor: MaskPredictor
    unwritten: frozenset[int]
    num_masks: int
    is_json: bool
    salt: str = ""

    @classmethod
    def of(
        cls,
        constraint: Constraint,
        params: SamplingParams,
        predictor: MaskPredictor,
        salt: str = "",
    ) -> "Order":
        """Return a request's order. Raises InputError for what cannot be used."""
        special = predictor.info.special
        eos_id = special.eos_id
        unwritten = frozenset({special.masking_id, *params.forbidden_token_ids})
        can_end = eos_id is not None and eos_id not in unwritten
        length, source = 0 if can_end else params.max_tokens, Source.of(constraint)
        return cls(source, predictor, unwritten, length, constraint.is_json, salt)

    @property
    def special(self) -> SpecialTokens:
        return self.predictor.info.special

    @property
    def key(self) -> Hashable:
        """A short name that differs for whatever must be built anew. Models of one
        tokenizer share what is built.
        """
        ids = np.array(sorted(self.unwritten), np.int64).tobytes()
        unwritten, model = hashlib.sha256(ids).digest(), self.predictor
        vocabulary = model.tokenizer, self.special, unwritten, model.info.vocab_size
        return self.salt, self.source.key, *vocabulary

    def kept(self) -> TokenAutomaton | None:
        """Return what is built already, None if something is not."""
        tokens = KEPT.get(TokenAutomaton, self.key)
        if tokens is None or not tokens.knows(self.num_masks):
            return None
        return tokens

    def built(self, stop: Stop | None = None) -> TokenAutomaton:
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
            tokens = TokenAutomaton(
                build(self.source, stop),
                self.predictor.tokenizer,
                self.special,
                self.unwritten,
                self.predictor.info.vocab_size,
            )
        tokens.feasible(self.num_masks)
        KEPT.put(self.key, tokens)
        return tokens
