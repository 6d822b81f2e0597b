"""What attention in blocks promises: a finished block is finished."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core import BlockCausal, Read, Scorer, Selector, TokenLogProbs, TokenSequence, drive
from dise_core.arrays import Ids, LogProbs, Mask
from dise_core.completion import completed
from dise_core.model import BIDIRECTIONAL, Attention
from dise_core.reading import CacheHint, CacheSlot, Guidance
from dise_core.testing.toy_model import END, SPECIAL, ToyPredictor
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


def own_logprobs(ids: list[int], length: int, max_length: int = 40) -> LogProbs:
    """Return log p(x_i | what position i may see) for every token of the text."""
    text: Ids = np.array(ids)
    toy = ToyPredictor(max_length, attention=BlockCausal(length))
    return toy.read([Read(text, np.arange(len(text)), TokenLogProbs(text))])[0].logprobs


@given(st.integers(2, 6), st.lists(token_ids, min_size=7, max_size=24), st.data())
def test_cutting_a_text_inside_a_block_changes_no_other_block(
    length: int, ids: list[int], data: st.DataObject
) -> None:
    stop = data.draw(st.integers(1, len(ids) - 1))
    start = stop - stop % length
    found = own_logprobs(ids[:stop], length)
    np.testing.assert_allclose(found[:start], own_logprobs(ids, length)[:start], atol=1e-6)
    ended = ids[:stop] + [END] * (-stop % length)
    np.testing.assert_allclose(found, own_logprobs(ended, length)[:stop], atol=1e-6)


def test_cutting_a_text_inside_a_block_changes_that_block() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        ids = random.integers(0, 10, 12).tolist()
        found, whole = own_logprobs(ids[:9], 4), own_logprobs(ids, 4)
        assert abs(found[8] - whole[8]) > 1e-4
        alone = ToyPredictor(attention=BlockCausal(4)).logits(np.array(ids[:9]))  # no end tokens
        assert abs(found[8] - (alone[8] - np.logaddexp.reduce(alone[8]))[ids[8]]) > 1e-4


def test_a_text_is_completed_to_its_border_and_never_beyond_the_longest() -> None:
    info = ToyPredictor(10, attention=BlockCausal(4)).info
    slot, ids = CacheSlot(), np.arange(6)
    hint, guidance = CacheHint(slot, (4, 6), 9), Guidance(ids + 1, 1.0)
    read = completed(Read(ids, ids[:2], TokenLogProbs(ids[:2]), cache=hint), info)
    guided = completed(Read(ids, ids[:2], TokenLogProbs(ids[:2]), guidance=guidance), info)
    assert read.token_ids.tolist() == [0, 1, 2, 3, 4, 5, END, END]
    assert read.cache == CacheHint(slot, (4, 8), 10)
    assert guided.guidance is not None
    assert guided.guidance.token_ids.tolist() == [1, 2, 3, 4, 5, 6, END, END]
    longest = completed(Read(np.arange(9), ids, TokenLogProbs(ids)), info)
    assert longest.token_ids.tolist() == [*range(9), END]
    assert completed(read, info) is read
    whole = ToyPredictor(10).info
    assert completed(Read(ids, ids, TokenLogProbs(ids)), whole).token_ids is ids
