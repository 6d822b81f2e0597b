"""Batches: padding is bounded, rows are shared, memory is bounded, and out-of-memory halves.

A matmul may sum in another order when it has other rows beside it, on some processors and with some
libraries: a row's answer is then the same only up to rounding, which grows with the logits. A
mix-up moves it by whole nats.
"""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dise_adapters.local import reader as reader_module
from dise_adapters.local.body import Batch
from dise_adapters.local.reader import TransformerReader, Window, padded_batches
from dise_core import LLM, Candidates, Distribution, Read, TokenLogProbs
from dise_core.errors import ModelError
from dise_core.reading import Guidance
from dise_core.rows import Row, distinct_rows
from tests.reference_llada import default_config, random_weights, write_checkpoint

ROUNDING = 1e-5
"""How far apart two answers to one question may be, relative to their size."""


def assert_same(one: np.ndarray, other: np.ndarray) -> None:
    np.testing.assert_allclose(one, other, rtol=ROUNDING, atol=ROUNDING)


class TinyBody:
    """A bidirectional body without weights; records the shape of every batch, fails above `fits`
    rows.
    """

    kept_shape = None
    max_padding = 0.25
    takes_overlays = False

    def __init__(self, fits: int = 1000, multiple: int = 1) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.fits, self.multiple = fits, multiple

    def __call__(self, batch: Batch) -> torch.Tensor:
        if len(batch.input_ids) > self.fits:
            raise torch.OutOfMemoryError("too much")
        self.shapes.append(batch.input_ids.shape)
        total = (batch.input_ids if batch.is_real is None else batch.input_ids * batch.is_real).sum(
            1, keepdims=True
        )
        states = np.stack([batch.input_ids, np.broadcast_to(total, batch.input_ids.shape)], axis=-1)
        return torch.from_numpy(states).float().flatten(0, 1)[batch.rows]


def make_reader(body: Any) -> TransformerReader:
    head = torch.nn.Linear(2, 9, bias=False)
    torch.nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(0))
    return TransformerReader(body, head, 9, torch.device("cpu"))


def reads_of(*lengths: int) -> list[Read]:
    generator = np.random.default_rng(0)
    return [Read(generator.integers(0, 9, n), np.arange(n), Distribution()) for n in lengths]


@given(st.lists(st.integers(1, 200), min_size=1, max_size=40), st.sampled_from([0.1, 0.25, 0.5]))
def test_every_row_is_in_one_batch_and_padding_is_bounded(
    lengths: list[int], max_padding: float
) -> None:
    rows = distinct_rows(
        [Read(np.arange(n), np.zeros(1, np.int64), Distribution()) for n in lengths]
    )
    batches = list(padded_batches(rows, max_padding))
    assert sorted(len(row.token_ids) for batch in batches for row in batch) == sorted(set(lengths))
    for batch in batches:
        width = max(len(row.token_ids) for row in batch)
        assert sum(len(row.token_ids) for row in batch) >= (1 - max_padding) * width * len(batch)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 8))
def test_a_row_alone_and_among_others_gets_the_same_answer(
    lengths: list[int], multiple: int
) -> None:
    reads = reads_of(*lengths)
    body = TinyBody(multiple=multiple)
    together = make_reader(body).read(reads)
    assert all(
        length % multiple == 0 and length - max(lengths) < multiple for _, length in body.shapes
    )
    for read, reading in zip(reads, together, strict=True):
        [alone] = make_reader(TinyBody()).read([read])
        assert_same(reading.logprobs, alone.logprobs)


def test_a_mix_up_of_rows_is_more_than_rounding() -> None:
    """What the tests of this file would not notice if their rows were alike."""
    reads = reads_of(9, 9, 7)
    readings = make_reader(TinyBody()).read(reads)
    rows = {
        (int(token), int(read.token_ids.sum())): logprobs
        for read, reading in zip(reads, readings, strict=True)
        for token, logprobs in zip(read.token_ids, reading.logprobs, strict=True)
    }
    for one, other in combinations(rows.values(), 2):
        assert np.abs(one - other).max() > 100 * ROUNDING * np.abs(one).max()


def windows(*sizes: tuple[int, int]) -> list[Row]:
    """Windows of so many tokens in texts of so many."""
    return [
        Window(np.arange(n), "target", None, (i,), num_keys=keys)
        for i, (n, keys) in enumerate(sizes)
    ]


def test_one_very_long_text_does_not_make_the_keys_of_all_windows_as_long() -> None:
    rows = windows((8, 4000), *[(8, 50 + n) for n in range(20)])
    batches = list(padded_batches(rows, 1 / 3))
    assert sum(map(len, batches)) == len(rows)
    [with_short] = [batch for batch in batches if rows[1] in batch]
    assert max(row.num_keys for row in with_short) < 100  # type: ignore[attr-defined]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(40, 900)), min_size=1, max_size=30))
def test_every_window_is_in_one_batch_whose_tokens_and_keys_are_mostly_real(
    sizes: list[tuple[int, int]],
) -> None:
    rows = windows(*sizes)
    batches = list(padded_batches(rows, 1 / 3))
    assert sorted(row.reads for batch in batches for row in batch) == sorted(
        row.reads for row in rows
    )
    for batch in batches:
        keys = [row.num_keys for row in batch]  # type: ignore[attr-defined]
        lengths = [len(row.token_ids) for row in batch]
        assert sum(keys) >= 0.5 * max(keys) * len(batch)
        assert sum(lengths) >= 2 / 3 * max(lengths) * len(batch) - 1e-9


def test_reads_of_one_text_go_through_once() -> None:
    body = TinyBody()
    [read] = reads_of(6)
    other = Read(read.token_ids.copy(), np.array([2]), TokenLogProbs(np.array([4])))
    one, two = make_reader(body).read([read, other])
    assert body.shapes == [(1, 6)]
    assert two.logprobs[0] == pytest.approx(one.logprobs[2, 4], rel=1e-6)


def test_a_read_of_no_position_needs_no_pass() -> None:
    body = TinyBody()
    [reading] = make_reader(body).read([Read(np.arange(3), np.zeros(0, np.int64), Candidates())])
    assert (len(reading.token_ids), body.shapes) == (0, [])


@pytest.mark.parametrize("fits", [1, 2, 3])
def test_out_of_memory_halves_the_batch_and_goes_on(fits: int) -> None:
    reads = reads_of(*[8] * 7)
    body = TinyBody(fits)
    readings = make_reader(body).read(reads)
    for expected, reading in zip(make_reader(TinyBody()).read(reads), readings, strict=True):
        assert_same(expected.logprobs, reading.logprobs)
    assert sum(rows for rows, _ in body.shapes) == 7


def test_one_text_that_does_not_fit_is_a_clear_error() -> None:
    with pytest.raises(ModelError, match="out of memory on one text of 8 tokens"):
        make_reader(TinyBody(fits=0)).read(reads_of(8))


def test_other_failures_are_not_mistaken_for_memory() -> None:
    class Broken(TinyBody):
        def __call__(self, *_: object) -> torch.Tensor:
            raise RuntimeError("shape mismatch")

    with pytest.raises(RuntimeError, match="shape mismatch"):
        make_reader(Broken()).read(reads_of(8))


def test_guided_rows_keep_their_places_in_a_mixed_batch() -> None:
    plain, guided = reads_of(5, 5)
    guided = Read(
        guided.token_ids, guided.positions, Distribution(), guidance=Guidance(np.full(5, 8), 1.0)
    )
    body = TinyBody()
    both = make_reader(body).read([plain, guided, plain])
    assert body.shapes == [(3, 5)]
    [alone], [with_guidance] = (
        make_reader(TinyBody()).read([plain]),
        make_reader(TinyBody()).read([guided]),
    )
    assert_same(both[0].logprobs, alone.logprobs)
    assert_same(both[1].logprobs, with_guidance.logprobs)


def test_chunks_of_the_head_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = default_config()
    predictor = LLM(str(write_checkpoint(tmp_path, config, random_weights(config)))).predictor
    reads = [Read(np.arange(n), np.arange(n), TokenLogProbs(np.arange(n))) for n in (40, 40, 7)]
    whole = predictor.read(reads)
    monkeypatch.setattr(reader_module, "MAX_LOGITS", 3 * 52)
    for one, other in zip(whole, predictor.read(reads), strict=True):
        assert_same(one.logprobs, other.logprobs)


def test_padding_changes_nothing_in_a_real_model(tmp_path: Path) -> None:
    config = default_config()
    predictor = LLM(str(write_checkpoint(tmp_path, config, random_weights(config)))).predictor
    reads = [
        Read(np.arange(n) % 50, np.arange(n), TokenLogProbs(np.arange(n) % 50))
        for n in (40, 36, 33)
    ]
    for read, reading in zip(reads, predictor.read(reads), strict=True):
        [alone] = predictor.read([read])
        np.testing.assert_allclose(reading.logprobs, alone.logprobs, atol=1e-5)


def test_a_target_asked_twice_at_its_place_is_computed_once() -> None:
    class CountingHead(torch.nn.Linear):
        num_rows = 0

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            self.num_rows += len(states)
            return super().forward(states)

    reader, ids = make_reader(TinyBody()), np.arange(8)
    head = reader._head = CountingHead(2, 9, bias=False)
    reads = [
        Read(ids, np.array([1, 2, 3]), TokenLogProbs(np.array([1, 2, 3]))),
        Read(ids, np.array([3, 2, 4]), TokenLogProbs(np.array([3, 2, 4]))),
        Read(ids, np.array([2]), TokenLogProbs(np.array([7]))),
    ]
    together = reader.read(reads)
    assert head.num_rows == 5
    for read, reading in zip(reads, together, strict=True):
        [alone] = reader.read([read])
        assert_same(reading.logprobs, alone.logprobs)
        np.testing.assert_array_equal(reading.token_ids, alone.token_ids)
