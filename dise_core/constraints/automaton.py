"""Deterministic automata over bytes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dise_core.arrays import Ids, Mask

States = npt.NDArray[np.int32]
"""States of an automaton."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Automaton:
    """A deterministic automaton over bytes, which accepts whole texts; state 0 starts.

    next: int32 [S + 1, 256]; accepting: bool [S + 1]. The last state is dead: none leads
    out of it. From each of the S others some bytes lead to acceptance. table: int32 [S +
    3, 256], which holds `next`, and behind it two states that tokens need: an end, and
    one before a first space.
    """

    table: States
    accepting: Mask

    @property
    def next(self) -> States:
        return self.table[:-2]

    @property
    def num_states(self) -> int:
        return len(self.table) - 3

    dead = num_states

    @property
    def num_bytes(self) -> int:
        return self.table.nbytes + self.accepting.nbytes

    def run(self, data: bytes, state: int = 0) -> int:
        for byte in data:
            state = int(self.next[state, byte])
        return state

    @property
    def forced(self) -> Mask:
        """Where the next byte is certain, bool [S + 1]: one byte, and no end."""
        is_single = (self.next != self.dead).sum(axis=1) == 1
        forced: Mask = is_single & ~self.accepting
        return forced


def trimmed(table: States, accepting: Mask, start: int) -> Automaton | None:
    """Return the automaton of the states from which something is accepted; None if
    nothing is from the start. table: int32 [S + 1, 256], whose last state is dead;
    accepting: bool [S + 1].
    """
    sources, data = np.nonzero(table != len(table) - 1)
    useful = distances(accepting, table[sources, data], sources.astype(np.int32)) >= 0
    if not useful[start]:
        return None
    useful[start] = False
    order = np.array([start, *np.flatnonzero(useful)])
    names = np.full(len(table), len(order), np.int32)
    names[order] = np.arange(len(order))
    trimmed_table = np.full((len(order) + 3, 256), len(order), np.int32)
    trimmed_table[: len(order)] = names[table[order]]
    trimmed_table[-1] = trimmed_table[0]
    trimmed_table[-1, ord(" ")] = 0
    return Automaton(trimmed_table, np.append(accepting[order], False))


def distances(goals: Mask, sources: States, targets: States) -> States:
    """Return the fewest edges from `goals` [S] to each state, int32 [S]; -1 for none."""
    order = np.argsort(sources, kind="stable")
    targets = targets[order]
    firsts = np.searchsorted(sources[order], np.arange(len(goals) + 1))
    distance = np.where(goals, 0, -1).astype(np.int32)
    frontier, steps = np.flatnonzero(goals), 0
    while len(frontier):
        steps += 1
        neighbours = targets[places(firsts, frontier)]
        frontier = np.unique(neighbours[distance[neighbours] < 0])
        distance[frontier] = steps
    return distance


def places(bounds: Ids, indices: Ids) -> Ids:
    """Return the places from bounds[i] to bounds[i + 1] for each i."""
    starts = bounds[indices]
    counts = bounds[indices + 1] - starts
    offsets = np.repeat(starts + counts - counts.cumsum(), counts)
    return offsets + np.arange(len(offsets))
