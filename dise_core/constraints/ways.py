"""Where each token leads from each state, and so which may stand between others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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

ANY, ENTRY = -1, 200
"""Any token that may be written; what a kept step of a level costs in bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Ways:
    """The ways on from every state that can be reached, those of like tokens as one: from
    sources to targets by the tokens of groups[numbers], int [W] each.
    """

    sources: Ids
    targets: Ids
    numbers: Ids
    groups: Sequence[Ids]
    num_tokens: int

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def num_bytes(self) -> int:
        """The bytes of its tables."""
        tables = (self.sources, self.targets, self.numbers, *self.groups)
        return sum(table.nbytes for table in tables)

    def moved(self, states: Mask, is_back: bool) -> Mask:
        """Return the states [S] to which some token leads from these, or from which."""
        starts, ends = (self.targets, self.sources) if is_back else (self.sources, self.targets)
        targets = np.zeros(len(states), np.bool_)
        targets[ends[states[starts]]] = True
        return targets

    def between(self, before: Mask, behind: Mask) -> Ids:
        """Return the numbers of the groups that lead from some of the states before a
        position to some behind it, bool [S] both.
        """
        return np.unique(self.numbers[before[self.sources] & behind[self.targets]])

    def union(self, numbers: Ids) -> Ids:
        """Return the tokens of some groups."""
        is_there = np.zeros(self.num_tokens, np.bool_)
        for number in numbers:
            is_there[self.groups[number]] = True
        return np.flatnonzero(is_there)


class Levels:
    """The sets of states in which a text may be somewhere, bool [S] as bytes; what a token
    makes of a set, and which tokens lead from one to another, is found once. map_of: the
    state behind a token from each. num_bytes: about what is kept. Threads may share it.
    """

    def __init__(self, ways: Ways, map_of: Callable[[int], States], num_states: int) -> None:
        self._ways, self._map_of, self._every = ways, map_of, np.arange(num_states)
        self.num_bytes = 0
        self._levels = dict[bytes, bytes]()
        self._moved = dict[tuple[bytes, int, bool], bytes]()
        self._between, self._unions = dict[tuple[bytes, bytes], Ids](), dict[bytes, Ids]()

    def of(self, states: Mask) -> bytes:
        """Return the level of a set of states, bool [S]; alike ones are one object."""
        level = states.tobytes()
        if level not in self._levels:
            self.num_bytes += 2 * len(level)
        return self._levels.setdefault(level, level)

    def of_state(self, state: int) -> bytes:
        """Return the level of one state."""
        return self.of(self._every == state)

    def moved(self, level: bytes, token: int, is_back: bool = False) -> bytes:
        """Return the states behind a token or ANY; if is_back, those that lead to these."""
        key = level, token, is_back
        if key not in self._moved:
            states = np.frombuffer(level, np.bool_)
            if token == ANY:
                targets = self._ways.moved(states, is_back)
            elif is_back:
                targets = states[self._map_of(token)]
            else:
                targets = np.zeros(len(states), np.bool_)
                targets[self._map_of(token)[states]] = True
            self._moved[key] = self.of(targets)
            self.num_bytes += ENTRY
        return self._moved[key]

    def between(self, before: Iterable[bytes], behind: Iterable[bytes]) -> TokenSets:
        """Return the tokens that lead from some of the states before each of M positions
        to some behind it; EVERY where none does.
        """
        found = [self._tokens(pair) for pair in zip(before, behind, strict=True)]
        sets = {id(ids): ids for ids in found if len(ids)}
        order = {name: number for number, name in enumerate(sets)}
        which = [order.get(id(ids), EVERY) for ids in found]
        return TokenSets(tuple(sets.values()), np.array(which, np.int64))

    def _tokens(self, pair: tuple[bytes, bytes]) -> Ids:
        """Return the tokens between two levels; alike ones are one array."""
        if pair not in self._between:
            before, behind = (np.frombuffer(level, np.bool_) for level in pair)
            groups = self._ways.between(before, behind)
            name = groups.tobytes()
            if name not in self._unions:
                self._unions[name] = self._ways.union(groups)
                self.num_bytes += self._unions[name].nbytes
            self._between[pair] = self._unions[name]
            self.num_bytes += ENTRY
        return self._between[pair]


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
