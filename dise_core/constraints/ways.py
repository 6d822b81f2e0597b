"""Where each token of a vocabulary leads from each state: which may stand between others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from dise_core.arrays import Ids, Mask
from dise_core.constraints.automaton import States
from dise_core.models.tokenizer import Tokenizer
from dise_core.token_sets import EVERY, TokenSets

MAX_LED = 6_000_000
"""Tokens that may lead on from all states together: less than a second's work."""

MAX_KEPT = 1_000_000
"""Tokens in the sets that are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """The tokens of known bytes, sorted by them. ids: int64 [T]; data: the bytes of all, joined;
    starts, lengths: of each token's; bounds: int64 [257], where the tokens of each first byte are.
    """

    ids: Ids
    data: npt.NDArray[np.uint8]
    starts: States
    lengths: States
    bounds: Ids

    def behind(self, table: States, state: int, dead: int) -> tuple[States, States]:
        """Return the rows of the tokens that do not lead from a state to `dead`, and where they do
        lead, [K] each. table: int32 [S, 256].
        """
        first = np.flatnonzero(table[state] != dead)
        counts = self.bounds[first + 1] - self.bounds[first]
        begun = np.repeat(self.bounds[first] + counts - counts.cumsum(), counts)
        rows = (begun + np.arange(len(begun))).astype(np.int32)
        states = np.repeat(table[state, first], counts)
        flat, length, whole = table.ravel(), 1, list[tuple[States, States]]()
        while len(rows):
            is_whole = self.lengths[rows] == length
            whole.append((rows[is_whole], states[is_whole]))
            rows, states = rows[~is_whole], states[~is_whole]
            states = flat[states * 256 + self.data[self.starts[rows] + length]]
            is_alive = states != dead
            rows, states, length = rows[is_alive], states[is_alive], length + 1
        if not whole:
            return rows, states
        return np.concatenate([pair[0] for pair in whole]), np.concatenate([p[1] for p in whole])


@lru_cache(maxsize=4)
def vocabulary_of(
    tokenizer: Tokenizer, vocab_size: int, left_out: frozenset[int] = frozenset()
) -> Vocabulary:
    """Return the tokens of known bytes, but for those that are left out."""
    written = (token_id for token_id in range(vocab_size) if token_id not in left_out)
    pairs = ((tokenizer.token_bytes(token_id), token_id) for token_id in written)
    known = sorted((data, token_id) for data, token_id in pairs if data)
    lengths = np.array([len(data) for data, _ in known], np.int32)
    firsts = np.array([data[0] for data, _ in known], np.int64)
    return Vocabulary(
        np.array([token_id for _, token_id in known], np.int64),
        np.frombuffer(b"".join(data for data, _ in known), np.uint8),
        lengths.cumsum(dtype=np.int32) - lengths,
        lengths,
        np.searchsorted(firsts, np.arange(257)),
    )


@dataclass(slots=True, eq=False)
class Ways:
    """The ways on from every state that can be reached, those of like tokens as one: from sources
    to targets by the tokens of groups[numbers], int [W] each. Threads may share it.
    """

    sources: Ids
    targets: Ids
    numbers: Ids
    groups: Sequence[Ids]
    num_tokens: int
    _sets: dict[bytes, Ids] = field(default_factory=dict)
    _num_kept: int = 0

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
        """Return the tokens that lead from some of the states before each of M positions to some
        behind it, bool [M, S] both; EVERY where none does.
        """
        keys = [
            np.unique(self.numbers[one[self.sources] & other[self.targets]])
            for one, other in zip(before, behind, strict=True)
        ]
        places = {key.tobytes(): number for number, key in enumerate(keys) if len(key)}
        order = {data: number for number, data in enumerate(places)}
        which = [order.get(key.tobytes(), EVERY) for key in keys]
        sets = tuple(self._union(data, keys[at]) for data, at in places.items())
        return TokenSets(sets, np.array(which, np.int64))

    def _union(self, name: bytes, numbers: Ids) -> Ids:
        if (kept := self._sets.get(name)) is not None:
            return kept
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
    table: States, start: int, dead: int, vocabulary: Vocabulary, ends: tuple[Ids, Mask, int]
) -> Ways | None:
    """Return the ways on from all states that can be reached; None if they are too many. table:
    int32 [S, 256]. ends: the end tokens, the states [S] from which they lead, and the one to which.
    """
    end_ids, may_end, end = ends
    numbers, groups, ways = dict[bytes, int](), list[Ids](), list[tuple[int, int, int]]()
    waiting, seen, num_led = [start], {start}, 0
    while waiting and num_led <= MAX_LED:
        state = waiting.pop()
        led = list(_groups(*vocabulary.behind(table, state, dead)))
        found = [(target, vocabulary.ids[rows]) for target, rows in led]
        if may_end[state] and len(end_ids):
            found.append((end, end_ids))
        for target, ids in found:
            name = blake2b(ids.data, digest_size=16).digest()
            if name not in numbers:
                numbers[name] = len(groups)
                groups.append(ids)
            ways.append((state, target, numbers[name]))
            num_led += len(ids)
        new = {target for target, _ in found} - seen
        seen |= new
        waiting += sorted(new)
    if num_led > MAX_LED:
        return None
    sources, targets, names = np.array(ways, np.int64).reshape(-1, 3).T
    num_tokens = 1 + max(ids.max() for ids in groups)
    return Ways(sources, targets, names, groups, int(num_tokens))


def _groups(rows: States, behind: States) -> Iterator[tuple[int, States]]:
    """Yield each state that tokens lead to, and those tokens' rows, in a fixed order."""
    counts = np.bincount(behind)
    targets = np.flatnonzero(counts)
    # There are fewer states than 2**16, and numpy sorts such numbers by their digits.
    order = np.argsort(behind.astype(np.uint16), kind="stable")
    parts = np.split(rows[order], counts[targets].cumsum()[:-1])
    yield from zip(targets.tolist(), parts, strict=False)
