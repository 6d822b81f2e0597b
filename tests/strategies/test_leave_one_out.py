"""The scorer "loo" beside exact posteriors of four tokens, by brute force over all texts."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from dise_core import (
    Floats,
    InputError,
    ModelInfo,
    Read,
    Reading,
    Selector,
    SpecialTokens,
    TokenSequence,
    completed,
    drive,
)
from dise_core.arrays import Mask
from dise_core.models.completion import drawn_tokens
from dise_core.plans.cost import count_nfe
from dise_core.testing.toy_model import naive_readout
from dise_strategies.scorers.dise import DiSE
from dise_strategies.scorers.interleaved import InterleavedRegeneration
from dise_strategies.scorers.leave_one_out import LeaveOneOut

SIZE = 4  # of the vocabulary and of every text
TEXTS = np.array(list(itertools.product(range(SIZE), repeat=SIZE)))
PRIOR = np.random.default_rng(0).dirichlet(np.full(len(TEXTS), 0.05))


class At(Selector):
    """Selects one position."""

    place: int

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of([self.place])


class Posteriors:
    """Answers p(x0[i] | x_t) of texts of which uniform noise kept a share of the tokens."""

    def __init__(self, kept: float) -> None:
        self._noise = kept * np.eye(SIZE) + (1 - kept) / SIZE

    def shares(self, text: Sequence[int], place: int, left_out: int | None = None) -> list[float]:
        """Return each token's probability at a place, given all tokens but one, [V]."""
        weights = PRIOR.copy()
        for at, token in enumerate(text):
            if at != left_out:
                weights *= self._noise[token, TEXTS[:, at]]
        sums = [float(weights[TEXTS[:, place] == token].sum()) for token in range(SIZE)]
        return [share / sum(sums) for share in sums]

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        """Answer in float64; the readout's float32 has seven digits."""
        return [self._answer(read) for read in reads]

    def read_hidden(self, reads: Sequence[Read]) -> list[Reading]:
        """Answer Reads whose hidden tokens are drawn first, as a model of uniform noise."""
        info = ModelInfo("exact", SIZE, SIZE, SpecialTokens(None, frozenset()), noise="uniform")
        return self.read([completed(read, info) for read in reads])

    def _answer(self, read: Read) -> Reading:
        text = read.token_ids.tolist()
        logits = np.log([self.shares(text, place) for place in read.positions.tolist()])
        reading = naive_readout(logits, read)
        exact = [
            _logprob(np.exp(row), own) for row, own in zip(logits, reading.token_ids, strict=True)
        ]
        np.testing.assert_allclose(reading.logprobs, exact, rtol=1e-6)
        return Reading(reading.token_ids, np.array(exact))  # type: ignore[arg-type]


def _logprob(shares: Floats, own: int) -> float:
    return -float(np.log1p(sum(np.delete(shares, own)) / shares[own]))


@pytest.mark.parametrize("kept", [0.5, 0.9, 0.999])
def test_leave_one_out_is_the_exact_posterior_given_all_other_tokens(kept: float) -> None:
    exact, scorers, gaps = Posteriors(kept), (LeaveOneOut(kept=kept), DiSE()), []
    for text in TEXTS.tolist():
        sequence = TokenSequence(np.array(text), 0, SpecialTokens(SIZE, frozenset()))
        for place, own in enumerate(text):
            found, plain = (
                drive(scorer.score(sequence, At(place=place)), exact.read).value
                for scorer in scorers
            )
            shares = np.array(exact.shares(text, place, left_out=place))
            assert found == pytest.approx(_logprob(shares, own), rel=0, abs=1e-9)
            gaps.append(plain - found)
    assert len(gaps) == SIZE ** (SIZE + 1)
    assert min(gaps) >= 0
    assert max(gaps) > 0.5  # the pull that is divided out


@pytest.mark.parametrize("length", [1, 4])
def test_the_share_kept_is_that_of_a_text_whose_other_tokens_all_fit(length: int) -> None:
    sequence = TokenSequence(np.arange(length), 0, SpecialTokens(SIZE, frozenset()))
    exact, last = Posteriors(0.5), At(place=length - 1)
    plain, named = (
        drive(scorer.score(sequence, last), exact.read).value
        for scorer in (LeaveOneOut(), LeaveOneOut(kept=length / (length + 1)))
    )
    assert plain == pytest.approx(named, rel=1e-12)


@pytest.mark.parametrize("k", [SIZE, 2])
def test_a_random_token_in_place_of_one_has_its_pull_divided_out(k: int) -> None:
    """What is left is the posterior given the others alone, where they are what noise of the
    share that the scorer takes makes of a text.
    """
    hidden, gaps = SIZE // k, []
    odds = (SIZE - hidden + 1) / hidden
    exact = Posteriors(odds / (1 + odds))
    special = SpecialTokens(SIZE, frozenset(), is_drawn=True)
    drawn = drawn_tokens(np.arange(SIZE), SIZE)
    for text in TEXTS.tolist():
        sequence = TokenSequence(np.array(text), 0, special)
        for place, own in enumerate(text):
            seen = [
                u if at % k == place % k else x
                for at, (x, u) in enumerate(zip(text, drawn, strict=True))
            ]
            shares = np.array(exact.shares(seen, place, left_out=place))
            scorer, at = InterleavedRegeneration(k=k), At(place=place)
            score, nfe = drive(count_nfe(scorer.score(sequence, at)), exact.read_hidden)
            assert score.value == pytest.approx(_logprob(shares, own), rel=0, abs=1e-9)
            assert nfe == 1
            gaps.append(score.value - _logprob(np.array(exact.shares(seen, place)), own))
    assert min(gaps) < -0.5  # where the drawn token is its own
    assert max(gaps) > 0.5
    with pytest.raises(InputError, match=r"no terms under uniform noise, .*: take 'dise'"):
        drive(InterleavedRegeneration().terms(sequence, at), exact.read)
