"""The likeliest valid text of candidates, or a drawn one, by dynamic programmes."""

from collections.abc import Callable, Sequence

import numpy as np

from dise_core.arrays import Floats, Ids, Mask
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.errors import PlanError

Weighted = tuple[Ids, Floats]
"""The candidates of a position and their log-weights, [K] each."""


def best(tokens: TokenAutomaton, state: int, rows: Sequence[Weighted], final: Mask) -> Ids:
    """Return the columns [N] of the heaviest text that leads from the state into `final`.

    Ties: the lower token id, the earlier position first. Raises PlanError if no text
    does.
    """
    lattice = _Lattice(tokens, state, rows)
    values = lattice.backward(final, lambda weights: weights.max(axis=0))
    return lattice.forward(values, lambda weights, _: int(weights.argmax()))


def drawn(
    tokens: TokenAutomaton, state: int, rows: Sequence[Weighted], final: Mask, uniforms: Floats
) -> Ids:
    """Return the columns [N] of a text drawn in proportion to exp of its weights' sum,
    from all that `best` chooses among, by uniform numbers in [0, 1), float64 [N].
    """
    lattice = _Lattice(tokens, state, rows)
    values = lattice.backward(final, _log_sum_exp)
    return lattice.forward(values, lambda weights, index: _draw(weights, uniforms[index]))


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
    """The states that can be reached in front of each position; candidates join them."""

    def __init__(self, tokens: TokenAutomaton, state: int, rows: Sequence[Weighted]) -> None:
        self._tokens = tokens
        self._orders = [np.argsort(ids, kind="stable") for ids, _ in rows]
        self._rows = [
            (ids[order], weights[order])
            for (ids, weights), order in zip(rows, self._orders, strict=True)
        ]
        self._states = [np.array([state])]
        for ids, _ in self._rows:
            is_reached = np.zeros(tokens.num_states, np.bool_)
            is_reached[tokens.steps(ids, self._states[-1])] = True
            is_reached[tokens.dead] = False
            self._states.append(np.flatnonzero(is_reached))

    def _ahead(self, index: int, states: Ids, worth: Floats) -> Floats:
        """Return candidates' worth from states, [K, R]. worth: of the states behind."""
        ids, weights = self._rows[index]
        everywhere = np.full(self._tokens.num_states, -np.inf)
        everywhere[self._states[index + 1]] = worth
        ahead: Floats = everywhere[self._tokens.steps(ids, states)] + weights[:, None]
        return ahead

    def backward(self, final: Mask, summed: Callable[[Floats], Floats]) -> list[Floats]:
        """Return the rest's worth from each state, before each position and the end."""
        values = [np.where(final[self._states[-1]], 0.0, -np.inf)]
        for index in reversed(range(len(self._rows))):
            values.append(summed(self._ahead(index, self._states[index], values[-1])))
        return values[::-1]

    def forward(self, values: list[Floats], choose: Callable[[Floats, int], int]) -> Ids:
        if values[0][0] == -np.inf:
            raise PlanError("no text of these candidates meets the constraint")
        columns, state = np.zeros(len(self._rows), np.int64), self._states[0]
        for index, order in enumerate(self._orders):
            column = choose(self._ahead(index, state, values[index + 1])[:, 0], index)
            columns[index] = order[column]
            state = self._tokens.steps(self._rows[index][0][[column]], state)[0]
        return columns
