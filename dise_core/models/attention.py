"""Attention patterns: which positions of a text attend to which."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from dise_core.arrays import Ids, Mask


class Attention(ABC):
    """Which positions of a text a position attends to."""

    @abstractmethod
    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        """Return where queries attend to keys, bool [Q, K]. Positions: int64 [Q], [K]."""


@dataclass(frozen=True, slots=True)
class Bidirectional(Attention):
    """Every position attends to every position, as in LLaDA and Dream."""

    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        return np.ones((len(query_positions), len(key_positions)), np.bool_)


BIDIRECTIONAL = Bidirectional()


@dataclass(frozen=True, slots=True)
class Causal(Attention):
    """A position attends to itself and earlier ones, which alone predict it."""

    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        return np.asarray(key_positions <= query_positions[:, None])


@dataclass(frozen=True, slots=True)
class BlockCausal(Attention):
    """A position attends to its own and earlier blocks, from the text's start."""

    length: int

    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        return np.asarray(key_positions // self.length <= (query_positions // self.length)[:, None])
