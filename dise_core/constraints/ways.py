"""Where each token leads from each state, and so which may stand between others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.constraints.automaton import States
from dise_core.constraints.building import Stop
from dise_core.constraints.moves import moves_of
from dise_core.constraints.vocabulary import Vocabulary
from dise_core.token_sets import EVERY, TokenSets

MAX_WORK = 8_000_000
"""Steps that may be taken to find all ways: a third of a second of one core."""

WAY, GROUPED = 100, 3
"""What a way, and a token of a set of its own, cost in steps."""

MAX_KEPT = 1_000_000
"""Tokens in the sets that are kept."""


@dataclass(slots=True, eq=False)
class Ways:
    """The ways on from every state that can be reached, those of like tokens as one: from
    sources to targets by the tokens of groups[numbers], int [W] each. Threads may share
    it.
    """

    sources: Ids
    targets: Ids
    numbers: Ids
    groups: Sequence[Ids]
    num_tokens: int
    _sets: dict[bytes, Ids] = field(default_factory=dict)
    _num_kept: int = 0

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def num_bytes(self) -> int:
        """The bytes of its tables, and of the sets that are kept."""
        tables = (self.sources, self.targets, self.numbers, *self.groups)
        return sum(table.nbytes for table in tables) + 8 * self._num_kept

    def after(self, states: Mask) -> Mask:
        """Return the states [S] to which some token leads from these."""
        behind = np.zeros(len(states), np.bool_)
        behind[self.targets[states[self.sources]]] = True
        return behind

    def before(self, states: Mask) -> Mask:
        """Return the states [S] from which some token leads to these."""
        ahead = np.zeros(len(states), np.bool_)
        ahead[self.sources[states[self.targets]]] = True
        return ahead

    def between(self, before: Mask, behind: Mask) -> TokenSets:
        """Return the tokens that lead from some of the states before each of M positions
        to some behind it, bool [M, S] both; EVERY where none does.
        """
        keys = [
            np.unique(self.numbers[starts[self.sources] & ends[self.targets]])
            for starts, ends in zip(before, behind, strict=True)
        ]
        places = {key.tobytes(): number for number, key in enumerate(keys) if len(key)}
        order = {data: number for number, data in enumerate(places)}
        numbers = [order.get(key.tobytes(), EVERY) for key in keys]
        sets = tuple(self._union(data, keys[at]) for data, at in places.items())
        return TokenSets(sets, np.array(numbers, np.int64))

    def _union(self, name: bytes, numbers: Ids) -> Ids:
        if (cached := self._sets.get(name)) is not None:
            return cached
        is_there = np.zeros(self.num_tokens, np.bool_)
        for number in numbers:
            is_there[self.groups[number]] = True
        union = np.flatnonzero(is_there)
        if self._num_kept + len(union) > MAX_KEPT:
            self._sets, self._num_kept = {}, 0
        self._sets[name] = union
        self._num_kept += len(union)
        return union


def ways_of(
    table: States,
    vocabulary: Vocabulary,
    is_written: Mask,
    ends: tuple[Ids, Mask, int],
    dead: int,
    stop: Stop,
) -> Ways | None:
    """Return the ways on from all states; None if finding them takes too much. table:
    int32 [S, 256]. is_written: bool [T], which tokens of the vocabulary count. ends: the
    end tokens, the states [S] from which they lead, and the one to which. Raises
    StoppedError.
    """
    end_ids, may_end, end = ends
    if (outcome := moves_of(table, dead, vocabulary, is_written, MAX_WORK, stop)) is None:
        return None
    moves, work = outcome
    numbers, groups, ways = dict[bytes, int](), list[Ids](), list[tuple[int, int, int]]()
    if len(end_ids):
        groups.append(end_ids)
        ways += [(int(state), end, 0) for state in np.flatnonzero(may_end)]
    pairs, move_numbers = np.divmod(moves.keys, max(1, len(moves.bounds) - 1))
    cuts = np.flatnonzero(np.diff(pairs, prepend=-1))
    work += WAY * (len(ways) + len(cuts))
    for first, limit in pairwise([*cuts.tolist(), len(move_numbers)] if work <= MAX_WORK else []):
        name = blake2b(move_numbers[first:limit].data, digest_size=16).digest()
        if name not in numbers:
            numbers[name] = len(groups)
            groups.append(moves.ids_of(move_numbers[first:limit]))
            work += GROUPED * len(groups[-1])
            if work > MAX_WORK:
                break
        ways.append((*divmod(int(pairs[first]), len(table)), numbers[name]))
    if work > MAX_WORK:
        return None
    sources, targets, names = np.array(ways, np.int64).reshape(-1, 3).T
    num_tokens = 1 + max((int(ids.max()) for ids in groups), default=-1)
    return Ways(sources, targets, names, groups, num_tokens)
