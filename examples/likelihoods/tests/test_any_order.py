"""The scorer any-order against all orders, one after the other."""

import itertools
from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
import pytest
from dise_likelihoods.any_order import AnyOrder

from dise_core import (
    LLM,
    BlockCausal,
    Floats,
    InputError,
    Mask,
    Score,
    ScoringParams,
    Selector,
    TokenSequence,
    count_nfe,
    drive,
)
from dise_core.testing import ToyPredictor, check_scorer

TOY, BLOCKS = ToyPredictor(), ToyPredictor(attention=BlockCausal(3))
MASK, END = 11, 10
"""The toy model's special tokens."""


class Response(Selector):
    """Selects the whole response."""

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(sequence.response_positions)


def scored(scorer: AnyOrder, ids: Sequence[int], toy: ToyPredictor = TOY) -> tuple[Score, int]:
    """Return the score of all tokens but the first, and its forward passes."""
    text = TokenSequence.of(
        ids[:1], ids[1:], toy.info.special, 3, origin="response" if toy is TOY else "text"
    )
    return drive(count_nfe(scorer.score(text, Response())), toy.read)


def all_orders(ids: Sequence[int], start: int, stop: int, toy: ToyPredictor = TOY) -> Floats:
    """Return log p_o of the tokens from start to stop for each of their orders, float64 [orders].
    The mask is never written.
    """
    totals = []
    for order in itertools.permutations(range(start, stop)):
        canvas, total = np.array(ids), 0.0
        canvas[start:stop] = MASK
        for position in order:
            logits = np.delete(toy.logits(canvas)[position], MASK)
            total += logits[ids[position]] - np.logaddexp.reduce(logits)
            canvas[position] = ids[position]
        totals.append(total)
    return np.array(totals)


def means(logs: Floats) -> tuple[float, float]:
    return float(logs.mean()), float(np.log(np.exp(logs).mean()))


def test_it_conforms() -> None:
    check_scorer(AnyOrder())
    check_scorer(AnyOrder(orders=2, exact_up_to=1))


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_mean_over_all_orders(seed: int) -> None:
    ids = np.random.default_rng(seed).integers(0, 10, 6).tolist()
    score, nfe = scored(AnyOrder(), ids)
    lower, value = means(all_orders(ids, 1, 6))
    assert (score.value, nfe) == (pytest.approx(value, abs=1e-5), 31)
    assert score.log_likelihood == score.value
    assert lower < value
    assert score.to_dict()["bounds"] == {
        "lower": pytest.approx(lower, abs=1e-5),
        "upper": score.value,
        "lower_standard_error": None,
        "upper_standard_error": None,
    }


def test_the_likelihoods_of_all_texts_sum_to_1() -> None:
    texts = itertools.product(range(MASK), repeat=2)
    values = [scored(AnyOrder(), [1, *ids])[0].value for ids in texts]
    assert np.exp(values).sum() == pytest.approx(1, abs=1e-5)


def test_blocks_are_revealed_side_by_side() -> None:
    """The first block begins in the prompt; end tokens fill the last one."""
    ids = [0, 1, 2, 2, 0, 1, 1]
    score, nfe = scored(AnyOrder(), ids, BLOCKS)
    filled, spans = [*ids, END, END], ((1, 3), (3, 6), (6, 7))
    parts = [means(all_orders(filled, start, stop, BLOCKS)) for start, stop in spans]
    lower, value = map(sum, zip(*parts, strict=True))
    assert (score.value, nfe) == (pytest.approx(value, abs=1e-5), 7)
    assert score.bounds is not None
    assert score.bounds.lower == pytest.approx(lower, abs=1e-5)
    sampled, _ = scored(AnyOrder(orders=500, exact_up_to=2), ids, BLOCKS)
    assert sampled.value == pytest.approx(value, abs=4 * (sampled.standard_error or 0))


def test_drawn_bounds_hold_in_the_mean_and_with_their_errors_in_95_of_100_draws() -> None:
    """The seeds are fixed, so this cannot fail by chance."""
    ids = [3, 0, 1, 2, 0, 1]
    lower, value = means(all_orders(ids, 1, 6))
    drawn = []
    for seed in range(200):
        score, _ = scored(AnyOrder(orders=8, exact_up_to=4, seed=seed), ids)
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
    toy, settings = ToyPredictor(), {"orders": 4000}
    params = ScoringParams(scorer="any-order", scorer_settings=settings, logprobs=None)
    with pytest.raises(InputError, match=r"72000 forward passes, above 65536: lower orders"):
        LLM(toy).score(["abc"], ["abcdefghi"], params)
    assert not toy.batches
