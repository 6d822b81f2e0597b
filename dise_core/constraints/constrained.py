"""A constraint of one request: which tokens are candidates, and what they weigh."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dise_core.arrays import Floats, Ids, Mask
from dise_core.constraints.orders import Order
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.errors import InputError
from dise_core.params.requests import SamplingParams
from dise_core.plans.reading import Reading
from dise_core.plans.readouts import Confidence
from dise_core.rule import TextRule

NUM_CANDIDATES = 32
"""The likeliest tokens of a position that are candidates."""

LAST_RESORT = -1e4
"""The weight, in nats, of a token that only validity asks for: few are written."""

LEAST = -5e3
"""The least that a log-probability counts: one impossible token is better than two."""

MAX_STEP = 40_000_000
"""Ways on from states by candidates that a step may look at: a fifth of a second."""

OPEN = -1
"""Where no valid text is known yet."""


@dataclass(frozen=True)
class Constrained(TextRule):
    """A constraint as one request applies it to a model's tokens, what it ordered being
    built. is_end_last: whether end tokens count for nothing in the confidences. Raises
    InputError if max_tokens hold no valid answer, or if a step of one answer may delay all
    others.
    """

    tokens: TokenAutomaton
    order: Order
    params: SamplingParams
    confidence: Confidence
    is_end_last: bool = False

    def __post_init__(self) -> None:
        tokens, max_tokens = self.tokens, self.params.max_tokens
        if not tokens.feasible(max_tokens)[tokens.start]:
            raise InputError(
                f"no answer of {max_tokens} tokens meets the constraint: the shortest "
                f"needs {tokens.least}",
                "max_tokens",
            )
        if self._step > MAX_STEP:
            length, is_whole = self._together, self.params.reviser is not None
            raise InputError(
                f"this constraint is too large for {'revised answers' if is_whole else 'blocks'} "
                f"of {length} tokens; at most {MAX_STEP // (self._step // length)} can be written "
                "together, or use smaller counts such as {1,500}",
                "max_tokens" if is_whole else "block_length",
            )

    @property
    def _together(self) -> int:
        """How many tokens a step may look at: a block's, or a revised response's."""
        params = self.params
        is_whole = params.reviser is not None
        return params.max_tokens if is_whole else min(params.max_tokens, params.block_length)

    @property
    def _step(self) -> int:
        """The ways on that a step of one answer may look at."""
        tokens = self.tokens
        return self._together * (NUM_CANDIDATES + len(tokens.completion)) * tokens.num_states

    @property
    def is_json(self) -> bool:
        return self.order.is_json

    def is_forced(self, response: Ids) -> Mask:
        return self.tokens.is_forced(response)

    @property
    def at_once(self) -> int:
        """How many answers of a request may go on in one step."""
        return max(1, MAX_STEP // self._step)

    @cached_property
    def _favoured(self) -> Ids:
        return np.array([token for token, bias in self.params.biases if bias > 0], np.int64)

    @cached_property
    def _unwritten(self) -> Ids:
        return np.array(sorted(self.order.unwritten), np.int64)

    @cached_property
    def offered(self) -> tuple[int, ...]:
        """The candidates beside the likeliest: completion tokens and favoured ones."""
        return (*self.tokens.completion.tolist(), *self._favoured.tolist())

    def weights(self, reading: Reading) -> Floats:
        """Return the log-weights of the candidates, float64 [M, K]; -inf for what may not
        be written. Top-k and top-p cut the NUM_CANDIDATES likeliest.
        """
        ids, params = reading.token_ids, self.params
        weights = np.maximum(reading.logprobs.astype(np.float64), LEAST)
        for token_id, bias in params.biases:
            weights[ids == token_id] += bias
        if params.is_drawn:
            weights /= params.temperature
        is_kept = _likely(weights, ids.shape[1] - len(self.offered) - 1, params)
        if len(self._favoured):
            is_kept |= np.isin(ids, self._favoured)
        weights[~is_kept] += LAST_RESORT
        at = np.searchsorted(self._unwritten, ids)  # many times as fast as np.isin
        weights[self._unwritten.take(at, mode="clip") == ids] = -np.inf
        return weights

    def confidences(self, reading: Reading, columns: Ids) -> Floats:
        """Return the untempered confidence in each row's column, float64 [M]."""
        rows, kind = np.arange(len(columns)), self.confidence
        probabilities = np.exp(reading.logprobs, dtype=np.float64)
        confidences = reading.confidences
        if kind != "entropy":
            confidences = probabilities[rows, columns]
        if kind == "margin":
            is_other = reading.token_ids != reading.token_ids[rows, columns, None]
            confidences = confidences - np.where(is_other, probabilities, 0).max(axis=1)
        if self.is_end_last:
            is_end = self.order.special.is_end(reading.token_ids[rows, columns])
            confidences = np.where(is_end, 0.0 if kind == "probability" else -np.inf, confidences)
        return confidences

    def final(self, ids: Ids, last_valid: Ids) -> Mask:
        """Return the states, before a text that ends the response, from which it can be
        filled: bool [num_states]. ids: int64 [N]; last_valid: what may stand at its masks,
        OPEN if unknown.
        """
        is_masked = ids == self.order.special.mask_id
        token_ids = np.where(is_masked, last_valid, ids)
        num_known = int(np.flatnonzero(token_ids != OPEN).max(initial=-1)) + 1
        final = self.tokens.feasible(len(ids) - num_known)
        return self.tokens.through(final, token_ids[:num_known], is_masked[:num_known])


def _likely(weights: Floats, num_ranked: int, params: SamplingParams) -> Mask:
    """Return which columns [M, K] remain of the first num_ranked by top-k and top-p."""
    is_kept = np.zeros(weights.shape, np.bool_)
    is_kept[:, :num_ranked] = True
    if params.is_drawn:
        order = np.argsort(-weights[:, :num_ranked], axis=1, kind="stable")
        ordered = np.take_along_axis(weights, order, axis=1)
        shares = np.exp(ordered - ordered[:, :1])
        shares /= shares.sum(axis=1, keepdims=True)
        is_first = shares.cumsum(axis=1) - shares < params.top_p
        is_first[:, params.top_k or num_ranked :] = False
        np.put_along_axis(is_kept, order, is_first, axis=1)
    return is_kept
