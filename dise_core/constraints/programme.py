"""The likeliest valid text of candidates, or a drawn one, by dynamic programmes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dise_core.arrays import Floats, Ids, Mask
from dise_core.constraints.automaton import States
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.errors import PlanError

FEW = 32
"""States of an automaton all of which are looked at sooner than those that are reached."""


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """A text with open positions. ids: int64 [N]; is_open: bool [N], where its M open
    positions are; candidates: int64 [M, K], what may stand there; weights: float64 [M,
    K], their log-weights. Of a token that is there twice the first column counts.
    """

    ids: Ids
    is_open: Mask
    candidates: Ids
    weights: Floats


def best(tokens: TokenAutomaton, state: int, choices: Choices, final: Mask) -> Ids:
    """Return the columns [M] of the heaviest text that leads from the state into `final`.

    Ties: the lower token id, the earlier position first. Raises PlanError if no text
    does.
    """
    lattice = _Lattice(tokens, state, choices, takes_all=tokens.num_states <= FEW)
    lattice.backward(final, lambda weights: weights.max(axis=0))
    return lattice.forward(lambda weights, _: int(weights.argmax()))


def drawn(
    tokens: TokenAutomaton, state: int, choices: Choices, final: Mask, uniforms: Floats
) -> Ids:
    """Return the columns [M] of a text drawn in proportion to exp of its weights' sum,
    from all that `best` chooses among, by uniform numbers in [0, 1), float64 [M].
    """
    lattice = _Lattice(tokens, state, choices, takes_all=False)  # or sums' last bits differ
    lattice.backward(final, _log_sum_exp)
    return lattice.forward(lambda weights, index: _draw(weights, uniforms[index]))


def _log_sum_exp(weights: Floats) -> Floats:
    highest = weights.max(axis=0)
    shift = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        total: Floats = shift + np.log(np.exp(weights - shift).sum(axis=0))
    return total


def _draw(weights: Floats, uniform: float) -> int:
    running = np.exp(weights - weights.max()).cumsum()
    at = min(uniform * running[-1], np.nextafter(running[-1], 0))  # the product may be rounded up
    return int(np.searchsorted(running, at, side="right"))


class _Lattice:
    """The states in front of each open position and behind it: candidates lead from the
    one to the other, the given tokens that follow to the next.
    """

    def __init__(
        self, tokens: TokenAutomaton, state: int, choices: Choices, takes_all: bool
    ) -> None:
        self._tokens, is_open = tokens, choices.is_open
        self._order = np.argsort(choices.candidates, axis=1, kind="stable")
        candidates = np.take_along_axis(choices.candidates, self._order, axis=1)
        self._weights = np.take_along_axis(choices.weights, self._order, axis=1)
        # Sorted by token id, stably: equal ids stand side by side, the first column's first. The
        # argmax then takes the lower id of a tie, and a token given twice does not count twice
        # where texts are drawn.
        self._weights[:, 1:][candidates[:, 1:] == candidates[:, :-1]] = -np.inf
        fixed = choices.ids[~is_open]
        self._kept, rows = tokens.kept_maps(np.concatenate([fixed, candidates.ravel()]))
        self._candidates = rows[len(fixed) :].reshape(candidates.shape)
        num_before = (np.flatnonzero(is_open) - np.arange(len(candidates))).tolist()
        bounds, fixed_rows = [0, *num_before, len(fixed)], rows[: len(fixed)].tolist()
        self._runs = [fixed_rows[first:limit] for first, limit in pairwise(bounds)]
        self._start, self._every = np.array([state]), np.arange(tokens.num_states)
        self._find_states(takes_all)

    def _find_states(self, takes_all: bool) -> None:
        """Find the states to which given tokens lead, those then in front of each open
        position, and those behind it; all that are reached, or simply all.
        """
        self._led, self._fronts, self._backs = list[Ids](), list[Ids](), list[Ids]()
        states = self._start
        for run, candidates in zip(self._runs, self._candidates, strict=False):
            self._led.append(self._through(run, states))
            if takes_all:
                states = self._every
            elif run:
                states = self._distinct(self._led[-1])
            self._fronts.append(states)
            if not takes_all:
                states = self._distinct(self._behind(candidates, states))
            self._backs.append(states)
        self._led.append(self._through(self._runs[-1], states))

    def _behind(self, rows: Ids, states: Ids) -> States:
        """Return the states behind tokens [K] from states [R], [K, R]."""
        if self._kept is None:
            return self._tokens.steps(rows, states)
        if states is self._every:
            return self._kept.take(rows, axis=0)
        return self._kept[rows[:, None], states]

    def _through(self, run: Sequence[int], states: Ids) -> Ids:
        """Return the states behind given tokens from states [R], [R]."""
        for row in run:
            if self._kept is None:
                states = self._tokens.steps(np.array([row]), states)[0]
            else:
                states = self._kept[row][states]
        return states

    def _distinct(self, states: Ids | States) -> Ids:
        is_there = np.zeros(len(self._every), np.bool_)
        is_there[states] = True
        is_there[self._tokens.dead] = False
        return np.flatnonzero(is_there)

    def backward(self, final: Mask, summed: Callable[[Floats], Floats]) -> None:
        """Find what the rest of the text is worth from each state behind each open
        position, [M, num_states]. Raises PlanError if it is nothing from the start.
        """
        # Viterbi from the end, or with log-sum-exp in place of max the backward pass of
        # forward-backward: worth[s] is what the text to the right can still add from state s.
        # `rest` has one entry for every state, so that candidates, which lead anywhere, index it
        # directly; those that lead nowhere valid find -inf there.
        worth = np.where(final[self._led[-1]], 0.0, -np.inf)
        self._rest = np.full((len(self._candidates), len(self._every)), -np.inf)
        for index in reversed(range(len(self._candidates))):
            rest, front, led = self._rest[index], self._fronts[index], self._led[index]
            rest[self._backs[index]] = worth
            behind = self._behind(self._candidates[index], front)
            worth = summed(rest[behind] + self._weights[index][:, None])
            if led is not front:
                everywhere = np.full(len(self._every), -np.inf)
                everywhere[front] = worth
                worth = everywhere[led]
        if worth[0] == -np.inf:
            raise PlanError("no text of these candidates meets the constraint")

    def forward(self, choose: Callable[[Floats, int], int]) -> Ids:
        """Return the columns [M], chosen one by one."""
        columns, state = np.zeros(len(self._candidates), np.int64), self._start
        for index, rest in enumerate(self._rest):
            state = self._through(self._runs[index], state)
            behind = self._behind(self._candidates[index], state)[:, 0]
            column = choose(rest[behind] + self._weights[index], index)
            columns[index] = self._order[index, column]
            state = behind[column : column + 1]
        return columns
