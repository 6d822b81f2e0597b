"""Any order: the likelihood of a text that is written one token at a time, in a random order."""

from dataclasses import replace
from itertools import chain
from typing import ClassVar

import numpy as np
from pydantic import Field

from dise_core import (
    Bounds,
    Floats,
    Ids,
    InputError,
    Mask,
    Noise,
    Plan,
    Read,
    Reading,
    Score,
    Scorer,
    Selector,
    TokenLogProbs,
    TokenSequence,
)
from dise_likelihoods.texts import factors

MAX_PASSES = 2**16
"""Forward passes that a text may cost."""

READS_AT_ONCE = 256
"""Reads that a plan yields together: each holds a copy of the text."""


class AnyOrder(Scorer):
    """log p(selected tokens | all others), in nats, of revealing them one by one in an order drawn
    uniformly, with a lower and an upper bound.

    With p_o the probability under order o, the value is log mean p_o, the lower bound mean log p_o,
    and the upper one, with any psi > 0, log psi + mean p_o / psi - 1. Up to exact_up_to tokens the
    means are over all orders, in 2^n - 1 passes. Above, they are estimates from 2 · orders, of at
    most n passes each, and psi is each half's mean for the other. A block-causal model reveals its
    blocks side by side, in the passes of one. Training: on masks alone is enough. Source of the
    upper bound: TUBE (arXiv 2605.24292).
    """

    default_selector: ClassVar[str] = "response"
    reads_end: ClassVar[bool] = False

    orders: int = Field(default=64, ge=2, le=MAX_PASSES)
    """Orders in each half."""
    exact_up_to: int = Field(default=8, ge=0, le=12)
    """Selected tokens, in a block of a block-causal model, up to which all orders are covered."""
    seed: int = Field(default=0, ge=0, lt=2**64)
    """Of the orders."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = np.flatnonzero(selector.select(sequence))
        if len(positions) == 0:
            return Score.empty()
        sizes = [len(part) for part in factors(sequence, positions)]
        if max(sizes) <= self.exact_up_to:
            lower, value = yield from _all_orders(sequence, positions, sizes)
            return Score(value, positions, None, value, bounds=Bounds(lower, value))
        logs = yield from self._drawn_orders(sequence, positions, sizes)
        value, error, bounds = _estimated(logs.reshape(2, self.orders, len(sizes)))
        return Score(value, positions, error, value, bounds=bounds)

    def _drawn_orders(self, text: TokenSequence, positions: Ids, sizes: list[int]) -> Plan[Floats]:
        """Return a plan of each part's log p_o, float64 [2 · orders, parts]."""
        count = 2 * self.orders
        if (passes := max(sizes) * count) > MAX_PASSES:
            raise InputError(
                f"orders={self.orders} could take {passes} forward passes, above {MAX_PASSES}: "
                f"lower orders, or select fewer tokens",
                "scorer_settings",
            )
        random = Noise.for_request(self.seed, text.ids, 0).generator()
        orders = [[random.permutation(size) for size in sizes] for _ in range(count)]
        ranks = np.array([np.concatenate(order) for order in orders])
        logs = np.zeros(ranks.shape)
        # Orders that have the same tokens left after a step share a row.
        for step in range(max(sizes)):
            logs += yield from _terms(text, positions, ranks >= step, ranks == step)
        return np.add.reduceat(logs, np.cumsum([0, *sizes[:-1]]), axis=1)


def _all_orders(text: TokenSequence, positions: Ids, sizes: list[int]) -> Plan[tuple[float, float]]:
    """Return a plan of the means over all orders of log p_o and, as a logarithm, of p_o."""
    # Bit i of a set says whether it hides the i-th token of a part.
    sets = np.arange(2 ** max(sizes))[:, None]
    bits, ends = np.concatenate([np.arange(size) for size in sizes]), np.repeat(sizes, sizes)
    hidden = (sets >> bits & 1 == 1) & (sets >> ends == 0)
    logs = yield from _terms(text, positions, hidden, hidden)
    parts = np.split(logs, np.cumsum(sizes[:-1]), axis=1)
    lower, value = np.sum([_means(part[: 2 ** part.shape[1]]) for part in parts], axis=0)
    return float(lower), float(value)


def _means(logs: Floats) -> tuple[float, float]:
    """Return the two means from the log-probabilities of n tokens, float64 [2^n, n], a row for each
    set of hidden ones. Those of a set follow from the sets that lack the token revealed first.
    """
    lower, value = np.zeros((2, len(logs)))
    for hidden in range(1, len(logs)):
        first = np.flatnonzero(hidden >> np.arange(logs.shape[1]) & 1)
        sets, terms = hidden ^ (1 << first), logs[hidden, first]
        lower[hidden] = (lower[sets] + terms).mean()
        value[hidden] = _log_mean((value[sets] + terms)[:, None])[0]
    return lower[-1], value[-1]


def _terms(text: TokenSequence, positions: Ids, hidden: Mask, revealed: Mask) -> Plan[Floats]:
    """Return a plan of the revealed tokens' log-probabilities, float64 [K, M], a row for each of K
    texts with hidden tokens; 0 for the others.
    """
    logs = np.zeros(hidden.shape)
    rows = np.flatnonzero(revealed.any(axis=1))
    for batch in np.split(rows, range(READS_AT_ONCE, len(rows), READS_AT_ONCE)):
        pairs = [_reads(text, positions[hidden[row]], positions[revealed[row]]) for row in batch]
        readings = yield list(chain.from_iterable(pairs))
        for row, tokens, masks in zip(batch, readings[::2], readings[1::2], strict=True):
            logs[row, revealed[row]] = _without_mask(tokens, masks)
    return logs


def _reads(text: TokenSequence, hidden: Ids, positions: Ids) -> tuple[Read, Read]:
    """Return the Reads of the log-probability of the text's tokens, and of that of the mask, at
    positions, int64 [M], with masks at `hidden`. They share a row.
    """
    targets = TokenLogProbs(text.ids[positions])
    tokens = Read(text.with_masks(hidden), positions, targets, context_ids=text.ids)
    masks = TokenLogProbs(np.full(len(positions), text.special.masking_id))
    return tokens, replace(tokens, readout=masks)


def _without_mask(tokens: Reading, masks: Reading) -> Floats:
    """Return the tokens' log-probabilities, float64 [M], renormalised over all but the mask, which
    is never written. They stay bit for bit where the mask has probability 0.
    """
    share = np.minimum(np.exp(masks.logprobs.astype(np.float64)), 1 - 1e-7)
    return tokens.logprobs.astype(np.float64) - np.log1p(-share)


def _log_mean(logs: Floats) -> Floats:
    return np.asarray(np.logaddexp.reduce(logs, axis=-2) - np.log(logs.shape[-2]))


def _error(samples: Floats) -> Floats:
    return np.asarray(samples.std(axis=-2, ddof=1) / np.sqrt(samples.shape[-2]))


def _estimated(halves: Floats) -> tuple[float, float, Bounds]:
    """Return the value, its standard error and the bounds from log p_o, float64 [2, orders, parts].

    The upper bound is the mean of two, whose errors are taken for dependent.
    """
    logs, psi = np.concatenate(halves), _log_mean(halves)[::-1]
    value, ratios = _log_mean(logs), np.exp(halves - psi[:, None])
    lower, upper = logs.mean(axis=0), (psi + ratios.mean(axis=1) - 1).mean(axis=0)
    errors = _error(np.exp(logs - value)), _error(logs), _error(ratios).mean(axis=0)
    error, *of_bounds = (float(np.linalg.norm(parts)) for parts in errors)
    return float(value.sum()), error, Bounds(float(lower.sum()), float(upper.sum()), *of_bounds)
