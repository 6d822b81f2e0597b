"""Attention patterns: which positions of a text attend to which."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from dise_core.arrays import Ids, Mask


class Attention(ABC):
    """Which positions of a text a position attends to: the first so many."""

    @abstractmethod
    def num_seen(self, positions: Ids) -> Ids:
        """Return how many of a text's tokens, from its start on, each of these positions
        attends to, int64 like `positions`; of a text that ends before, all.
        """

    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        """Return where queries attend to keys, bool [Q, K]. Positions: int64 [Q], [K]."""
        return np.asarray(key_positions < self.num_seen(query_positions)[:, None])


@dataclass(frozen=True, slots=True)
class Bidirectional(Attention):
    """Every position attends to every position, as in LLaDA and Dream."""

    def num_seen(self, positions: Ids) -> Ids:
        return np.full_like(positions, np.iinfo(np.int64).max)


BIDIRECTIONAL = Bidirectional()


@dataclass(frozen=True, slots=True)
class Causal(Attention):
    """A position attends to itself and earlier ones, which alone predict it."""

    def num_seen(self, positions: Ids) -> Ids:
        return positions + 1


@dataclass(frozen=True, slots=True)
class BlockCausal(Attention):
    """A position attends to its own and earlier blocks, from the text's start."""

    length: int

    def num_seen(self, positions: Ids) -> Ids:
        return (positions // self.length + 1) * self.length


@dataclass(frozen=True, slots=True)
class Canvases(Attention):
    """A position of a canvas attends to all of it and to the finished text before.

    That text, the prompt and the canvases of `Read.context_ids`, is read causally.
    Positions count from where canvases begin, `Read.start`: a prompt's are negative, and
    each attends to itself and earlier ones. Source: DiffusionGemma.
    """

    length: int

    def num_seen(self, positions: Ids) -> Ids:
        borders = (positions // self.length + 1) * self.length
        return np.where(positions < 0, positions + 1, borders)
