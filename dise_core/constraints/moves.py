"""What tokens do to an automaton; tokens that do the same are looked at once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from dise_core.arrays import Ids, Mask
from dise_core.constraints.automaton import States, places
from dise_core.constraints.building import Stop
from dise_core.constraints.vocabulary import Vocabulary

SEED = np.uint64(int.from_bytes(os.urandom(8), "big"))


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """What the tokens of a vocabulary do to the states of an automaton, those that do the
    same as one move. ids: int64 [T], the tokens by their moves; bounds: int64 [N + 1],
    where each's begin; keys: int64 [K], (source * S + target) * N + move, ascending.
    """

    ids: Ids
    bounds: Ids
    keys: Ids

    def ids_of(self, moves: Ids) -> Ids:
        """Return the tokens of some moves, ascending."""
        return np.sort(self.ids[places(self.bounds, moves)])


@dataclass(slots=True, eq=False)
class _Level:
    """The moves of the first bytes of tokens: from sources to targets, those of each from
    bounds on, [M + 1].
    """

    sources: States
    targets: States
    bounds: Ids

    def behind(self, table: States, dead: int, moves: Ids, values: Ids) -> tuple[_Level, Ids]:
        """Return each of some moves [M] with another byte behind it, and what names it:
        alike for those that do the same, 0 where all lead to `dead`.
        """
        at, counts = places(self.bounds, moves), np.diff(self.bounds)[moves]
        owners = np.repeat(np.arange(len(moves)), counts)
        targets = table.ravel()[self.targets[at].astype(np.int64) * 256 + values[owners]]
        is_alive = targets != dead
        sources, targets, owners = self.sources[at[is_alive]], targets[is_alive], owners[is_alive]
        bounds = np.searchsorted(owners, np.arange(len(moves) + 1))
        marks = _mix(sources.astype(np.uint64) * np.uint64(len(table)) + targets.astype(np.uint64))
        sums = np.append(np.uint64(0), marks.cumsum(dtype=np.uint64))
        return _Level(sources, targets, bounds), np.diff(sums[bounds])

    def only(self, moves: Ids) -> _Level:
        """Return some of the moves."""
        at = places(self.bounds, moves)
        bounds = np.append(0, np.diff(self.bounds)[moves].cumsum())
        return _Level(self.sources[at], self.targets[at], bounds)


def moves_of(
    table: States, dead: int, vocabulary: Vocabulary, is_written: Mask, max_steps: int, stop: Stop
) -> tuple[Moves, int] | None:
    """Return what tokens do, and the steps that it took to find out; None beyond
    max_steps. table: int32 [S, 256]. is_written: bool [T], which tokens of the vocabulary
    count. Raises StoppedError.
    """
    values, starts = _alike(table, dead)[vocabulary.data], vocabulary.starts
    is_useful = np.minimum.reduceat(values, starts) >= 0 if len(starts) else is_written
    rows = np.flatnonzero(is_useful & is_written)
    nodes, every = np.zeros(len(rows), np.int64), np.arange(len(table), dtype=np.int32)
    level = _Level(every, every, np.array([0, len(every)]))
    token_ids, token_moves = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    pairs, pair_moves = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    depth, num_moves, num_steps = 0, 0, 0
    while len(rows):
        stop.check()
        keys = nodes * 256 + values[starts[rows] + depth]
        distinct, inverse = np.unique(keys, return_inverse=True)
        before, more = np.divmod(distinct, 256)
        num_steps += int(np.diff(level.bounds)[before].sum())
        if num_steps > max_steps:
            return None
        longer, names = level.behind(table, dead, before, more)
        _, first, alike = np.unique(names, return_index=True, return_inverse=True)
        level, nodes = longer.only(first), alike[inverse]
        is_alive = np.diff(level.bounds)[nodes] > 0
        rows, nodes, depth = rows[is_alive], nodes[is_alive], depth + 1
        is_whole = vocabulary.lengths[rows] == depth
        end_nodes = np.unique(nodes[is_whole])
        token_ids.append(vocabulary.ids[rows[is_whole]])
        token_moves.append(num_moves + np.searchsorted(end_nodes, nodes[is_whole]))
        ends = level.only(end_nodes)
        pairs.append(ends.sources.astype(np.int64) * len(table) + ends.targets)
        pair_moves.append(num_moves + np.repeat(np.arange(len(end_nodes)), np.diff(ends.bounds)))
        num_moves += len(end_nodes)
        rows, nodes = rows[~is_whole], nodes[~is_whole]
    tokens = np.concatenate(token_ids), np.concatenate(token_moves)
    return _gather(*tokens, np.concatenate(pairs), np.concatenate(pair_moves)), num_steps


def _gather(ids: Ids, token_moves: Ids, pairs: Ids, pair_moves: Ids) -> Moves:
    """Return tokens [T] and pairs of states [K] by their moves."""
    num_moves = 1 + int(token_moves.max(initial=-1))
    order = np.argsort(token_moves, kind="stable")
    bounds = np.searchsorted(token_moves[order], np.arange(num_moves + 1))
    return Moves(ids[order], bounds, np.sort(pairs * max(1, num_moves) + pair_moves))


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return hashes (splitmix64) that nobody outside of this process can predict."""
    mixed = numbers + SEED
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _alike(table: States, dead: int) -> Ids:
    """Return for each byte the least that leads to the same from all states; -1 where no
    byte leads anywhere, [256].
    """
    columns, firsts = np.ascontiguousarray(table.T), dict[bytes, int]()
    names = [blake2b(column.data, digest_size=16).digest() for column in columns]
    alike = np.array([firsts.setdefault(name, byte) for byte, name in enumerate(names)], np.int64)
    alike[(columns == dead).all(axis=1)] = -1
    return alike
