"""What holds for every masked text that a Monte Carlo or interleaved scorer asks about."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dise_core import Read, Scorer, TokenSequence, drive
from dise_core.scoring.score import Score
from dise_strategies.scorers.interleaved import InterleavedRegeneration
from dise_strategies.scorers.monte_carlo import MonteCarlo
from dise_strategies.selectors.counted import LastK
from dise_strategies.selectors.whole import Full, Response
from tests.laws.generators import sequences
from tests.recorded import Recorded, one_nat_each

seeds = st.integers(0, 2**64 - 1)
monte_carlo = st.one_of(
    st.builds(MonteCarlo, num_samples=st.integers(1, 12), seed=seeds),
    st.builds(MonteCarlo, estimator=st.just("llada"), num_samples=st.integers(1, 12), seed=seeds),
    st.builds(MonteCarlo, estimator=st.just("dream"), num_samples=st.integers(1, 12), seed=seeds),
)


def reads_of(scorer: Scorer, sequence: TokenSequence, selector: object) -> tuple[list[Read], Score]:
    """Return what the scorer asks of a model that gives every token -1 nat, and its score."""
    read = Recorded(one_nat_each)
    return read.reads, drive(scorer.score(sequence, selector), read)  # type: ignore[arg-type]


@given(monte_carlo, sequences)
def test_masks_stand_where_the_read_asks_only_in_the_response_and_hide_its_own_tokens(
    scorer: MonteCarlo, sequence: TokenSequence
) -> None:
    seen, _ = reads_of(scorer, sequence, Response())
    for read in seen:
        masked = np.flatnonzero(read.token_ids == sequence.special.mask_id)
        assert np.array_equal(masked, read.positions)
        assert (masked >= sequence.prompt_length).all()
        whole = np.append(sequence.ids, read.token_ids[len(sequence) :])
        assert np.array_equal(read.readout.targets, whole[masked])  # type: ignore[union-attr]
        kept = np.setdiff1d(np.arange(len(whole)), masked)
        assert np.array_equal(read.token_ids[kept], whole[kept])


@given(st.integers(1, 12), seeds, sequences)
def test_a_sample_of_l_masks_weighs_n_over_l(
    num_samples: int, seed: int, sequence: TokenSequence
) -> None:
    """With -1 nat a token each sample is n / l times -l: every estimate is exactly -n, whatever l
    was.
    """
    assume(len(sequence.response))
    for scorer in (
        MonteCarlo(num_samples=num_samples, seed=seed),
        MonteCarlo(estimator="llada", num_samples=num_samples, seed=seed),
    ):
        seen, score = reads_of(scorer, sequence, Response())
        assert len(seen) == num_samples
        assert score.value == pytest.approx(-len(sequence.response))
        assert (score.standard_error is None) == (num_samples == 1)
        assert score.standard_error == pytest.approx(0 if num_samples > 1 else None, abs=1e-9)


@given(st.integers(1, 300), seeds)
def test_as_many_samples_as_tokens_mask_every_number_of_them(num_tokens: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    samples = MonteCarlo(estimator="llada", num_samples=num_tokens).samples(num_tokens, random)
    lengths = sorted(int(sample.is_masked.sum()) for sample in samples)
    assert lengths == list(range(1, num_tokens + 1))


@given(st.integers(1, 6), sequences)
def test_interleaved_passes_score_each_selected_token_once_while_it_is_masked(
    k: int, sequence: TokenSequence
) -> None:
    for selector in (Response(), LastK(k=3), Full()):
        seen, score = reads_of(InterleavedRegeneration(k=k), sequence, selector)
        start = sequence.prompt_length
        offsets = np.flatnonzero(selector.select(sequence)[start:])
        assert sorted(at - start for read in seen for at in read.positions) == offsets.tolist()
        assert len(seen) == len(set(offsets % k))
        for read in seen:
            masked = np.flatnonzero(read.token_ids == sequence.special.mask_id) - start
            [j] = set((read.positions - start) % k)
            assert masked.tolist() == list(range(j, len(sequence.response), k))
        assert score.num_positions == len(offsets)
