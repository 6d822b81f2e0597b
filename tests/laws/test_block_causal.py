"""What attention in blocks promises: a finished block is finished."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core import (
    BlockCausal,
    Distribution,
    Read,
    Scorer,
    Selector,
    TokenLogProbs,
    TokenSequence,
    drive,
)
from dise_core.arrays import Ids, LogProbs, Mask
from dise_core.models.attention import BIDIRECTIONAL, Attention
from dise_core.models.completion import completed
from dise_core.plans.reading import CacheHint, CacheSlot, Guidance
from dise_core.testing.toy_model import END, MASK, SPECIAL, ToyPredictor
from dise_strategies.scorers.dise import DiSE
from dise_strategies.scorers.interleaved import InterleavedRegeneration
from dise_strategies.scorers.monte_carlo import MonteCarlo
from dise_strategies.scorers.shadow import Shadow
from tests.laws.generators import token_ids
from tests.recorded import Recorded
from tests.reference_blocks import two_streams

scorers = st.sampled_from([DiSE(), InterleavedRegeneration(k=2), Shadow()])


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


@pytest.mark.parametrize("scorer", [DiSE(), InterleavedRegeneration(k=2), Shadow()])
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


@given(st.integers(1, 6), st.lists(token_ids, min_size=1, max_size=20), st.data())
def test_a_read_of_two_streams_is_the_trained_one(
    length: int, ids: list[int], data: st.DataObject
) -> None:
    """The toy model's single layer of attention, written out for [x_t ; x_0]."""
    clean = np.array(ids + [END] * (-len(ids) % length))
    is_masked = data.draw(st.lists(st.booleans(), min_size=len(clean), max_size=len(clean)))
    noisy = np.where(is_masked, MASK, clean)
    toy, num_tokens = ToyPredictor(attention=BlockCausal(length)), len(clean)
    everywhere = np.arange(num_tokens)
    read = Read(noisy, everywhere, Distribution(), context_ids=clean)
    [reading] = toy.read([read])
    embedded, places = toy._embedding[np.append(noisy, clean)], toy._positions[:num_tokens]
    heard = np.tanh(embedded * np.tile(places, (2, 1)))
    sees = two_streams(num_tokens, length).numpy()[:num_tokens]
    context = sees @ heard / sees.sum(axis=1, keepdims=True)
    logits = np.tanh(embedded[:num_tokens] + places + 3 * context) @ toy._head
    logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    np.testing.assert_allclose(reading.logprobs, logprobs, atol=1e-5)


masked_scorers = st.sampled_from(
    [
        InterleavedRegeneration(k=2),
        MonteCarlo(num_samples=4),
        MonteCarlo(estimator="llada", num_samples=4),
        Shadow(),
    ]
)


@given(st.integers(1, 5), st.lists(token_ids, min_size=3, max_size=20), st.data(), masked_scorers)
def test_a_scorer_masks_nothing_before_the_block_that_it_reads(
    length: int, ids: list[int], data: st.DataObject, scorer: Scorer
) -> None:
    """Every Read that it asks is answered as block by block, each after the finished text."""
    toy = ToyPredictor(attention=BlockCausal(length))
    text = TokenSequence.of(ids[:2], ids[2:], SPECIAL, length, origin="text")
    stop = data.draw(st.integers(3, len(ids)))
    asked = Recorded(toy.read)
    drive(scorer.score(text, Block(length=len(ids), stop=stop)), asked)
    assert asked.reads
    for read, reading in zip(asked.reads, toy.read(asked.reads), strict=True):
        for index, position in enumerate(read.positions):
            start = position - position % length
            border = start + length
            # A shadow is seen by none, so masking the token in place asks the same of one layer.
            masked = read.token_ids.copy()
            masked[position] = MASK
            ended = np.append(text.ids[:start], (masked if read.shadow else read.token_ids)[start:])
            ended = np.append(ended, np.full(-len(ended) % length, END))[:border]
            logits = toy.logits(ended)[position]
            expected = logits[text.ids[position]] - np.logaddexp.reduce(logits)
            assert reading.logprobs[index] == pytest.approx(expected, abs=1e-5)
