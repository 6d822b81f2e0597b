"""Sets of tokens that may stand at a text's positions, and the rule behind them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dise_core.arrays import Ids, Mask

EVERY = -1
"""Where any token may stand."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenSets:
    """For each of M positions the tokens that may stand there. sets: each int64 [K], K >=
    1, no token twice; positions of alike sets share one. which: int64 [M], the position's
    set, or EVERY.
    """

    sets: tuple[Ids, ...]
    which: Ids

    def at(self, rows: Ids | Mask | slice) -> TokenSets:
        """Return the sets of some of the positions."""
        return replace(self, which=self.which[rows])

    @classmethod
    def joined(cls, parts: Sequence[TokenSets]) -> TokenSets:
        """Return the sets of the positions of several, in order; an array that they share
        counts once.
        """
        places: dict[int, int] = {}
        sets, which = list[Ids](), list[Ids]()
        for part in parts:
            for ids in part.sets:
                if id(ids) not in places:
                    places[id(ids)] = len(sets)
                    sets.append(ids)
            numbers = np.array([*(places[id(ids)] for ids in part.sets), EVERY], np.int64)
            which.append(numbers[part.which])  # EVERY is the last one
        return cls(tuple(sets), np.concatenate(which))


class TextRule(ABC):
    """What the response of a text must match. is_told: whether scores are told among the
    tokens that it allows; else they leave out those that it forced. is_json: whether what
    matches is JSON.
    """

    @property
    def is_json(self) -> bool:
        return False

    @property
    @abstractmethod
    def is_told(self) -> bool: ...

    @abstractmethod
    def allowed(self, response: Ids, cuts: Collection[int]) -> TokenSets:
        """Return the tokens that may stand in place of each of a finished response, [R],
        given the others up to the next of the `cuts`, positions of the response.
        """

    @abstractmethod
    def is_forced(self, response: Ids) -> Mask:
        """Return which tokens of a response [R] were certain from earlier ones."""
