"""What attention in blocks promises: a finished block is finished."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core import BlockCausal, Scorer, Selector, TokenSequence, drive
from dise_core.arrays import Mask
from dise_core.model import BIDIRECTIONAL, Attention
from dise_core.testing.toy_model import SPECIAL, ToyPredictor
from dise_strategies.scorers.dise import DiSE
from dise_strategies.scorers.interleaved import InterleavedRegeneration
from tests.laws.generators import token_ids

scorers = st.sampled_from([DiSE(), InterleavedRegeneration(k=2)])


class Block(Selector):
    """Selects the response's part of the block of `length` positions that ends at `stop`."""

    length: int
    stop: int

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(slice(max(self.stop - self.length, 2), self.stop))


def score_of(ids: list[int], length: int, stop: int, scorer: Scorer, attention: Attention) -> float:
    """Return the score of the block that ends at `stop`, in a text whose prompt has 2 tokens."""
    text = TokenSequence.of(ids[:2], ids[2:], SPECIAL, length, origin="text")
    plan = scorer.score(text, Block(length=length, stop=stop))
    return drive(plan, ToyPredictor(attention=attention).read).value


@given(st.integers(1, 5), st.integers(1, 3), st.data(), scorers)
def test_text_after_a_finished_block_never_changes_its_score(
    length: int, num_blocks: int, data: st.DataObject, scorer: Scorer
) -> None:
    stop = length * num_blocks + 2 * length  # past the prompt of 2 for blocks of 1 too
    ids = data.draw(st.lists(token_ids, min_size=stop, max_size=stop))
    more = data.draw(st.lists(token_ids, min_size=1, max_size=12))
    alone, followed = (
        score_of(text, length, stop, scorer, BlockCausal(length)) for text in (ids, ids + more)
    )
    assert followed == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize("scorer", [DiSE(), InterleavedRegeneration(k=2)])
def test_with_attention_to_everything_it_does(scorer: Scorer) -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        ids, more = random.integers(0, 10, 8).tolist(), random.integers(0, 10, 3).tolist()
        alone, followed = (
            score_of(text, 4, 8, scorer, BIDIRECTIONAL) for text in (ids, ids + more)
        )
        assert abs(followed - alone) > 1e-4
