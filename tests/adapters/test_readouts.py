"""The torch readouts against naive ones, one row and one token at a time in float64."""

import math
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dise_adapters.local.reading.readouts import group_reads, readings_of
from dise_adapters.vllm.wire import pack, unpack
from dise_core import Candidates, Distribution, Read, Reading, TokenLogProbs, TopLogProbs
from dise_core.arrays import Floats, Ids, log_odds, probabilities
from dise_core.noise import Noise
from dise_core.plans.readouts import Confidence, Readout
from dise_core.testing.toy_model import Logits, naive_readout
from tests.laws.generators import logits as logits_strategy


def read_all(logits: Logits, readouts: list[Readout]) -> list[tuple[Read, Reading]]:
    """Answer several readouts at all rows at once, as one batch does."""
    num_rows = len(logits)
    reads = [
        Read(np.zeros(num_rows, np.int64), np.arange(num_rows), readout) for readout in readouts
    ]
    answered: dict[int, Reading] = {}
    for group in group_reads(dict(enumerate(reads))):
        rows = torch.tensor(np.tile(logits, (len(group.indices), 1)), dtype=torch.float32)
        size = max(1, group.num_rows // 2)
        answered |= dict(readings_of([group], reads, size, rows.__getitem__))
    return [(read, answered[index]) for index, read in enumerate(reads)]


def assert_close(logits: Logits, readouts: list[Readout]) -> None:
    for read, reading in read_all(logits, readouts):
        expected = naive_readout(logits, read)
        assert reading.token_ids.tolist() == expected.token_ids.tolist()
        assert (reading.logprobs <= 1e-6).all()
        np.testing.assert_allclose(reading.logprobs, expected.logprobs, atol=1e-5)
        np.testing.assert_allclose(reading.confidences, expected.confidences, atol=1e-5)


@dataclass(frozen=True, slots=True)
class Nudged(Noise):
    """The same uniform numbers, each moved by so much."""

    by: float = 0.0

    def uniforms(self, positions: Ids, purpose: int = 0) -> Floats:
        return np.clip(Noise.uniforms(self, positions, purpose) + self.by, 0.0, 1 - 1e-12)


def assert_drawn(logits: Logits, read: Read, reading: Reading) -> None:
    """The same uniform number gives the same token, but where rounding decides: within 1e-5 of a
    step, or of top-p.
    """
    readout = read.readout
    assert isinstance(readout, Candidates)
    assert readout.noise is not None
    allowed = []
    for by, top_p in product((-1e-5, 0.0, 1e-5), (-1e-5, 0.0, 1e-5)):
        noise = Nudged(readout.noise.seed, readout.noise.stream, readout.noise.step, by)
        nudged = replace(readout, noise=noise, top_p=readout.top_p + top_p)
        allowed.append(naive_readout(logits, replace(read, readout=nudged)).token_ids)
    for token, tokens in zip(reading.token_ids, np.stack(allowed, axis=1), strict=True):
        assert token in tokens


kinds = st.sampled_from(["probability", "entropy", "margin"])

TARGETS = np.array([3, 1, 4, 1, 5])
DRAWN = Candidates(temperature=0.5, noise=Noise(7))
TOP = TopLogProbs(3)
DIFFERENT: dict[str, tuple[Readout, Readout]] = {
    "TokenLogProbs.targets": (TokenLogProbs(TARGETS), TokenLogProbs(TARGETS + 1)),
    "TopLogProbs.k": (TOP, TopLogProbs(4)),
    "TopLogProbs.ids": (TOP, replace(TOP, ids=(2, 9))),
    "TopLogProbs.targets": (TOP, replace(TOP, targets=TARGETS)),
    "TopLogProbs.with_entropy": (TOP, replace(TOP, with_entropy=True)),
    "Candidates.temperature": (DRAWN, replace(DRAWN, temperature=3.0)),
    "Candidates.top_p": (DRAWN, replace(DRAWN, top_p=0.1)),
    "Candidates.top_k": (DRAWN, replace(DRAWN, top_k=1)),
    "Candidates.noise": (DRAWN, replace(DRAWN, noise=Noise(8))),
    "Candidates.confidence": (Candidates(), Candidates(confidence="margin")),
    "Candidates.forbidden": (Candidates(), Candidates(forbidden=tuple(range(9)))),
    "Candidates.is_tempered": (DRAWN, replace(DRAWN, is_tempered=True)),
    "Candidates.unranked": (Candidates(), Candidates(unranked=(0, 1, 2))),
    "Candidates.allowed": (Candidates(), Candidates(allowed=(0, 1))),
    "Candidates.bias": (Candidates(), Candidates(bias=((4, 50.0),))),
}
"""For each field of a readout two readouts that differ in it alone, and in their answers."""


def test_reads_that_differ_in_any_field_are_answered_as_alone() -> None:
    kinds = get_args(Readout)
    assert {*DIFFERENT} == {f"{kind.__name__}.{f.name}" for kind in kinds for f in fields(kind)}
    logits = np.random.default_rng(0).normal(size=(5, 12))
    for name, pair in DIFFERENT.items():
        alone = [bytes_of(read_all(logits, [readout])[0][1]) for readout in pair]
        assert alone[0] != alone[1], name
        for order in (1, -1):
            together = [bytes_of(reading) for _, reading in read_all(logits, [*pair[::order]])]
            assert together == alone[::order], name


def bytes_of(reading: Reading) -> list[bytes]:
    parts = (reading.token_ids, reading.logprobs, reading.confidences)
    return [part.tobytes() for part in parts]


@given(logits_strategy, st.lists(st.integers(0, 11), min_size=5, max_size=5), st.integers(1, 12))
def test_token_and_top_logprobs_agree_with_the_naive_ones(
    logits: Logits, targets: list[int], k: int
) -> None:
    assert_close(
        logits,
        [
            TokenLogProbs(np.array(targets)),
            TopLogProbs(k),
            Distribution(),
            TokenLogProbs(np.array(targets)),
        ],
    )


@given(
    logits_strategy,
    st.lists(st.integers(0, 11), min_size=5, max_size=5),
    st.integers(0, 13),
    st.lists(st.integers(0, 11), max_size=4).map(tuple),
)
def test_tokens_asked_for_by_name_and_entropies_agree_with_the_naive_ones(
    logits: Logits, targets: list[int], k: int, ids: tuple[int, ...]
) -> None:
    """Those with targets are computed together, and so are those without."""
    asked: list[Readout] = [
        TopLogProbs(k, some, own, with_entropy)
        for some, own, with_entropy in product(
            (ids, ()), (None, np.array(targets), np.array(targets[::-1])), (False, True)
        )
    ]
    assert_close(logits, asked)
    for read, reading in read_all(logits, asked):
        [travelled] = unpack(pack([read], [reading]), [read], 12)
        np.testing.assert_array_equal(travelled.token_ids, reading.token_ids)
        np.testing.assert_array_equal(travelled.logprobs, reading.logprobs)
        np.testing.assert_allclose(travelled.confidences, reading.confidences, rtol=1e-6)


drawings = st.sampled_from(
    [(0.0, 1.0, 0), (0.0, 0.6, 3), (0.3, 0.01, 0), (0.5, 0.8, 0), (1.0, 0.5, 20), (2.5, 1.0, 1)]
)
"""Temperature, top-p and top-k."""


@given(
    logits_strategy,
    kinds,
    st.booleans(),
    drawings,
    st.integers(0, 1000),
    st.lists(st.integers(0, 11), max_size=3),
    st.lists(st.integers(0, 11), max_size=3),
    st.lists(st.integers(0, 11), max_size=6),
    st.dictionaries(st.integers(0, 11), st.floats(-100, 100), max_size=4),
)
def test_candidates_agree_with_the_naive_ones(
    logits: Logits,
    kind: Confidence,
    is_tempered: bool,
    drawing: tuple[float, float, int],
    seed: int,
    forbidden: list[int],
    unranked: list[int],
    allowed: list[int],
    bias: dict[int, float],
) -> None:
    allowed = [token for token in allowed if token not in forbidden]
    ranking = (kind, tuple(forbidden), is_tempered, tuple(unranked))
    choice = (tuple(allowed), tuple(bias.items()))
    readouts: list[Readout] = [
        Candidates(*drawing, Noise(seed, stream), *ranking, *choice) for stream in range(2)
    ]
    for read, reading in read_all(logits, readouts):
        expected = naive_readout(logits, read)
        assert_drawn(logits, read, reading)
        assert not np.isin(reading.token_ids, forbidden).any()
        assert not allowed or np.isin(reading.token_ids, allowed).all()
        is_same = reading.token_ids == expected.token_ids
        for found, naive in (
            (reading.logprobs, expected.logprobs),
            (reading.confidences, expected.confidences),
        ):
            np.testing.assert_allclose(found[is_same], naive[is_same], atol=1e-5)
        [travelled] = unpack(pack([read], [reading]), [read], 12)
        np.testing.assert_allclose(travelled.confidences, reading.confidences, atol=1e-6)


def test_confidences_within_1e_7_of_1_keep_their_order_on_every_way() -> None:
    logits = np.zeros((3, 12))
    logits[:, 5] = [30.0, 22.0, 26.0]
    [(read, reading)] = read_all(logits, [Candidates()])
    np.testing.assert_allclose(1 - reading.confidences, 11 * np.exp(-logits[:, 5]), rtol=1e-2)
    [travelled] = unpack(pack([read], [reading]), [read], 12)
    np.testing.assert_allclose(1 - travelled.confidences, 11 * np.exp(-logits[:, 5]), rtol=1e-2)
    assert np.argsort(-travelled.confidences).tolist() == [0, 2, 1]


def test_log_odds_reach_both_ends() -> None:
    assert probabilities(log_odds(np.array([0.0, 0.5, 1.0]))).tolist() == [0.0, 0.5, 1.0]


EVERY_KIND = (
    TokenLogProbs(np.array([5])), Candidates(), TopLogProbs(1), TopLogProbs(0, (5,)),
    Distribution(),
)  # fmt: skip


@pytest.mark.parametrize("readout", EVERY_KIND, ids=repr)
@pytest.mark.parametrize(("gap", "expected"), [(19, -5.6028e-9), (40, -4.2484e-18)])
def test_the_log_probability_of_a_sure_token_is_not_rounded_to_0(
    readout: Readout, gap: float, expected: float
) -> None:
    logits = np.full((1, 12), -np.inf)
    logits[0, [5, 7]] = gap + 4, 4
    [(read, reading)] = read_all(logits, [readout])
    [travelled] = unpack(pack([read], [reading]), [read], 12)
    for answer in (reading, travelled, naive_readout(logits, read)):
        value = answer.logprobs.ravel()[answer.token_ids.ravel().tolist().index(5)]
        assert value.dtype == np.float32
        assert value == pytest.approx(expected, rel=1e-4, abs=0)


def test_the_sum_over_a_canvas_of_sure_tokens_is_that_of_float64() -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(256, 3000)).astype(np.float32)
    targets = generator.integers(3000, size=256)
    logits[np.arange(256), targets] = generator.uniform(18, 45, 256)
    [(_, reading)] = read_all(logits.astype(np.float64), [TokenLogProbs(targets)])
    exact = []
    for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
        others = math.fsum(math.exp(z - row[target]) for i, z in enumerate(row) if i != target)
        exact.append(-math.log1p(others))
    assert math.fsum(reading.logprobs.tolist()) == pytest.approx(math.fsum(exact), rel=1e-6, abs=0)
    np.testing.assert_allclose(reading.logprobs, exact, rtol=1e-6)


@pytest.mark.parametrize("readout", EVERY_KIND, ids=repr)
def test_an_infinite_logit_is_told_as_nan(readout: Readout) -> None:
    logits = np.zeros((1, 12))
    logits[0, 5] = np.inf
    [(_, reading)] = read_all(logits, [readout])
    assert np.isnan(reading.logprobs).any()


def test_greedy_ties_go_to_the_lower_id() -> None:
    logits = np.zeros((1, 12))
    logits[0, [3, 7]] = 1.0
    [(_, reading)] = read_all(logits, [Candidates()])
    assert reading.token_ids.tolist() == [3]


@pytest.mark.parametrize(("vocabulary", "bound"), [(12, 50), (300, 435)])
def test_draws_follow_the_distribution(vocabulary: int, bound: float) -> None:
    """Chi-square of 300,000 draws: above the bound, with vocabulary - 2 degrees of freedom, in
    one seed of a million.
    """
    num_draws, chunk = 300_000, 20_000
    row = np.random.default_rng(0).normal(size=vocabulary) * 1.5
    read = Read(
        np.zeros(num_draws, np.int64),
        np.arange(num_draws),
        Candidates(0.8, noise=Noise(7), forbidden=(4,)),
    )
    [group] = group_reads({0: read})
    rows = torch.tensor(row, dtype=torch.float32).expand(chunk, vocabulary)
    [(_, reading)] = readings_of([group], [read], chunk, lambda _: rows)
    weights = np.exp(row / 0.8)
    weights[4] = 0
    expected = weights / weights.sum() * num_draws
    counts = np.bincount(reading.token_ids, minlength=vocabulary)
    assert counts[4] == 0
    likely = expected > 0
    assert ((counts - expected)[likely] ** 2 / expected[likely]).sum() < bound


def test_a_uniform_number_at_the_very_end_still_draws_an_allowed_token() -> None:
    class AlmostOne(Noise):
        def uniforms(self, positions: np.ndarray, purpose: int = 0) -> np.ndarray:  # type: ignore[type-arg]
            return np.full(len(positions), np.nextafter(1.0, 0.0))

    logits = np.zeros((5, 12))
    [(_, reading)] = read_all(logits, [Candidates(1.0, noise=AlmostOne(0), forbidden=(10, 11))])
    assert reading.token_ids.tolist() == [9] * 5


@pytest.mark.parametrize("kind", ["probability", "entropy", "margin"])
def test_the_confidence_of_a_certain_token_is_the_highest_there_is(kind: Confidence) -> None:
    logits = np.zeros((1, 12))
    logits[0, 5] = 200.0
    [(_, reading)] = read_all(logits, [Candidates(confidence=kind)])
    assert reading.confidences[0] == pytest.approx(0.0 if kind == "entropy" else 1.0)
