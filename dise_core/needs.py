"""How much memory a model takes, counted from its configuration before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

CACHE_TOKENS = 16384
"""Tokens whose keys and values are kept where nobody says how many."""

BITS = {"float32": 32.0, "bfloat16": 16.0, "int8": 8.0, "int4": 4.25}
"""The memory of a weight: in int4, 128 weights share a scale and an offset of 16 bits each."""

OVERHEAD = 0.6 * 2**30
"""What a GPU's libraries take beside the model, in bytes."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Counts of numbers. quantizable: the weights that the option quantization makes smaller, 0
    for a model that it refuses. others: all other weights. per_cached_token: keys and values; 0
    for a model without a KV cache. per_token: what a forward pass holds for each token.
    """

    quantizable: int
    others: int
    per_cached_token: int
    per_token: int

    def weights(self, kind: str) -> float:
        """Return the bytes of the weights. kind: one of BITS."""
        others = max(16.0, BITS[kind])
        return (self.quantizable * BITS[kind] + self.others * others) / 8

    def cache(self, kind: str, tokens: int = CACHE_TOKENS) -> float:
        """Return the bytes of the keys and values of so many tokens."""
        return tokens * self.per_cached_token * _of_states(kind)

    def forward(self, kind: str, tokens: int) -> float:
        """Return the bytes of a forward pass over so many tokens."""
        return tokens * self.per_token * _of_states(kind)


def _of_states(kind: str) -> int:
    """Return the bytes of one number that is no weight."""
    return 4 if kind == "float32" else 2
