"""What each token counts in DiSE, by hand: a model that says -i nats of the token at i."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dise_core import Floats, Mask, Read, Reading, Selector, TokenLogProbs, TokenSequence, drive
from dise_core.scoring.scorer import Union
from dise_core.testing.toy_model import SPECIAL
from dise_strategies.scorers.dise import DiSE

TEXT = TokenSequence.of([4, 5], [6, 7, 8, 9], SPECIAL, 4)


class Counted(Selector):
    """Selects the tokens with a count, and gives them those; without weights, all alike."""

    counts: tuple[float, ...]
    weighs: bool = True

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(np.flatnonzero(self.counts))

    def weights(self, sequence: TokenSequence) -> Floats | None:
        return np.array(self.counts) if self.weighs else None


class Zeros(Counted):
    """Selects all, and gives nothing a weight."""

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(slice(None))


def read(reads: Sequence[Read]) -> list[Reading]:
    """Answer -i nats of the text's own token at i, and refuse all other questions."""
    for asked in reads:
        assert isinstance(asked.readout, TokenLogProbs)
        assert asked.token_ids.tolist() == TEXT.ids.tolist(), "nothing is masked"
        assert asked.readout.targets.tolist() == TEXT.ids[asked.positions].tolist()
    return [Reading(asked.readout.targets, -asked.positions.astype(np.float32)) for asked in reads]  # type: ignore[union-attr]


CASES: list[tuple[Selector, float, dict[int, float]]] = [
    (Counted(counts=(0, 0, 1, 1, 1, 1), weighs=False), -3.5, dict.fromkeys((2, 3, 4, 5), 0.25)),
    (Counted(counts=(0, 0, 1, 0, 0, 3), weighs=False), -3.5, {2: 0.5, 5: 0.5}),
    (Counted(counts=(0, 0, 1, 0, 0, 3)), -4.25, {2: 0.25, 5: 0.75}),
    (Counted(counts=(0, 0, 100, 0, 0, 300)), -4.25, {2: 0.25, 5: 0.75}),
    (Counted(counts=(2, 0, 0, 0, 0.5, 0)), -0.8, {0: 0.8, 4: 0.2}),
    (Counted(counts=(0, 0, 0, 0, 0, 0.1)), -5.0, {5: 1.0}),
    (
        Union(
            parts=(
                Counted(counts=(0, 0, 1, 0, 0, 3)),
                Counted(counts=(0, 1, 9, 0, 0, 0), weighs=False),
            )
        ),
        -3.6,
        {1: 0.2, 2: 0.2, 5: 0.6},
    ),
]
"""A selector, the value, and each token's share of it by its position."""


@pytest.mark.parametrize(("selector", "value", "shares"), CASES)
def test_a_token_counts_by_its_share_of_the_weights(
    selector: Selector, value: float, shares: dict[int, float]
) -> None:
    score = drive(DiSE().score(TEXT, selector), read)
    assert score.value == pytest.approx(value, abs=1e-12)
    assert score.positions.tolist() == [*shares]
    assert score.is_mean
    assert score.token_probability == pytest.approx(np.exp(value))


@pytest.mark.parametrize(("selector", "value", "shares"), CASES)
def test_its_terms_have_these_shares(
    selector: Selector, value: float, shares: dict[int, float]
) -> None:
    terms = drive(DiSE().terms(TEXT, selector), read)
    [weights], [asked] = terms.weights, terms.reads
    assert dict(zip(asked.positions.tolist(), weights, strict=True)) == pytest.approx(shares)
    assert (terms.positions.tolist(), terms.is_mean) == ([*shares], True)
    assert drive(terms.score(), read).value == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("selector", [Zeros(counts=(0,) * 6), Counted(counts=(0,) * 6)])
def test_where_nothing_counts_there_is_no_score(selector: Selector) -> None:
    terms = drive(DiSE().terms(TEXT, selector), read)
    for score in (drive(DiSE().score(TEXT, selector), read), drive(terms.score(), read)):
        assert (score.value, score.num_positions) == (-np.inf, 0)


def test_a_long_text_is_summed_in_float64() -> None:
    """10,000 tokens of -0.1 nats and one of -100,000: in float32 the sum would be 0.4 % off."""
    text = TokenSequence(np.full(10_001, 4), 0, SPECIAL)
    logprobs = np.full(10_001, -0.1, np.float32)
    logprobs[0] = -100_000

    def answer(reads: Sequence[Read]) -> list[Reading]:
        return [Reading(asked.readout.targets, logprobs[asked.positions]) for asked in reads]  # type: ignore[union-attr]

    expected = (-100_000 - 10_000 * float(np.float32(0.1))) / 10_001
    for weighs in (False, True):
        selector = Counted(counts=(1.0,) * 10_001, weighs=weighs)
        assert drive(DiSE().score(text, selector), answer).value == pytest.approx(
            expected, rel=1e-12
        )
