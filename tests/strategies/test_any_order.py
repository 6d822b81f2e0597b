"""The scorer any-order against all orders, one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
import pytest

from dise_core import LLM, InputError, ScoringParams
from dise_core.arrays import Floats
from dise_core.testing import ToyPredictor
from dise_strategies.scorers.any_order import AnyOrder
from tests.exact_toy import ExactToy, all_texts

FULL, BLOCKS = ExactToy(), ExactToy(block_length=3)


def all_orders(ids: Sequence[int], start: int, stop: int) -> Floats:
    """Return log p_o of the tokens from start to stop for each of their orders."""
    totals = []
    for order in itertools.permutations(range(start, stop)):
        canvas, total = [*ids[:start], *[3] * (stop - start), *ids[stop:]], 0.0
        for position in order:
            total += FULL.logprobs(canvas)[position, ids[position]]
            canvas[position] = ids[position]
        totals.append(total)
    return np.array(totals)


def truth(logs: Floats) -> tuple[float, float]:
    return float(logs.mean()), float(np.log(np.exp(logs).mean()))


@pytest.mark.parametrize("ids", all_texts(5)[::60])
def test_it_is_the_mean_over_all_orders(ids: list[int]) -> None:
    score, nfe = FULL.score(AnyOrder(), FULL.text([1, *ids], 1))
    lower, value = truth(all_orders([1, *ids], 1, 6))
    assert (score.value, nfe) == (pytest.approx(value, abs=1e-9), 31)
    assert score.log_likelihood == score.value
    assert lower < value
    assert score.to_dict()["bounds"] == {
        "lower": pytest.approx(lower, abs=1e-9),
        "upper": score.value,
        "lower_standard_error": None,
        "upper_standard_error": None,
    }


def test_the_likelihoods_of_all_texts_sum_to_1() -> None:
    values = [FULL.score(AnyOrder(), FULL.text(ids))[0].value for ids in all_texts(4)]
    assert np.exp(values).sum() == pytest.approx(1, abs=1e-9)


def test_blocks_are_revealed_side_by_side() -> None:
    """The first block begins in the prompt, the last one is not full."""
    ids = [0, 1, 2, 2, 0, 1, 1]
    score, nfe = BLOCKS.score(AnyOrder(), BLOCKS.text(ids, 1))
    parts = [truth(all_orders(ids[:stop], start, stop)) for start, stop in ((1, 3), (3, 6), (6, 7))]
    lower, value = map(sum, zip(*parts, strict=True))
    assert (score.value, nfe) == (pytest.approx(value, abs=1e-9), 7)
    assert score.bounds is not None
    assert score.bounds.lower == pytest.approx(lower, abs=1e-9)
    sampled, _ = BLOCKS.score(AnyOrder(orders=500, exact_up_to=2), BLOCKS.text(ids, 1))
    assert sampled.value == pytest.approx(value, abs=4 * (sampled.standard_error or 0))


@pytest.mark.parametrize("ids", [[0, 1, 2, 0, 1], [2, 2, 1, 0, 0]])
def test_drawn_bounds_hold_in_the_mean_and_with_their_errors_in_95_of_100_draws(
    ids: list[int],
) -> None:
    """The seeds are fixed, so this cannot fail by chance."""
    lower, value = truth(all_orders(ids, 0, 5))
    drawn = []
    for seed in range(200):
        score, _ = FULL.score(AnyOrder(orders=8, exact_up_to=4, seed=seed), FULL.text(ids))
        assert score.bounds is not None
        assert score.bounds.lower <= score.value <= score.bounds.upper
        drawn.append(astuple(score.bounds))
    low, high, low_error, high_error = np.array(drawn).T
    assert abs(low.mean() - lower) < 4 * low.std() / 200**0.5
    assert low_error.mean() == pytest.approx(low.std(), rel=0.1)
    assert high.mean() >= value
    is_covered = (low - 2 * low_error <= value) & (value <= high + 2 * high_error)
    assert is_covered.mean() >= 0.95


def test_too_many_passes_are_refused_before_any() -> None:
    toy = ToyPredictor()
    params = ScoringParams(scorer="any-order", scorer_settings={"orders": 4000}, logprobs=None)
    with pytest.raises(
        InputError, match=r"72000 forward passes, above 65536: lower orders, or select"
    ):
        LLM(toy).score(["abc"], ["abcdefghi"], params)
    assert not toy.batches
