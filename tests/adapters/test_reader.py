"""Batches: padding is bounded, rows are shared, memory is bounded, and out-of-memory halves.

A matmul may sum in another order when it has other rows beside it, on some processors and with some
libraries: a row's answer is then the same only up to rounding, which grows with the logits. A
mix-up moves it by whole nats.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.reading.batching import batches, text_batch
from dise_adapters.local.reading.layout import Layout, Run
from dise_adapters.local.reading.reader import TransformerReader
from dise_core import LLM, Candidates, Distribution, Read, TokenLogProbs, TopLogProbs
from dise_core.errors import ModelError
from dise_core.models.attention import BIDIRECTIONAL
from dise_core.plans.reading import Guidance
from dise_core.plans.rows import Row
from dise_core.testing.toy_model import naive_readout

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
        self.num_passes = 0
        self.fits, self.multiple = fits, multiple

    def __call__(self, batch: TextBatch, rows: np.ndarray) -> torch.Tensor:
        self.num_passes += 1
        if len(batch.input_ids) > self.fits:
            raise torch.OutOfMemoryError("too much")
        self.shapes.append(batch.input_ids.shape)
        total = (batch.input_ids if batch.is_real is None else batch.input_ids * batch.is_real).sum(
            1, keepdims=True
        )
        states = np.stack([batch.input_ids, np.broadcast_to(total, batch.input_ids.shape)], axis=-1)
        return torch.from_numpy(states).float().flatten(0, 1)[rows]


def make_reader(body: Any) -> TransformerReader:
    head = torch.nn.Linear(2, 9, bias=False)
    torch.nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(0))
    return TransformerReader(body, head, 9, torch.device("cpu"), Layout(BIDIRECTIONAL))


def reads_of(*lengths: int) -> list[Read]:
    generator = np.random.default_rng(0)
    return [Read(generator.integers(0, 9, n), np.arange(n), Distribution()) for n in lengths]


def runs_of(*sizes: tuple[int, int], is_window: bool = False) -> list[Run]:
    """Runs of so many tokens that attend to so many keys; the number of each is its read."""
    return [
        Run(Row(ids, "target", None, (index,)), (ids,), [], num_keys, is_window=is_window)
        for index, (length, num_keys) in enumerate(sizes)
        for ids in [np.arange(length)]
    ]


@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(0, 900)), min_size=1, max_size=40),
    st.sampled_from([0.1, 0.25, 1 / 3, 0.5]),
    st.sampled_from([64, 2048]),
)
def test_every_run_is_in_one_batch_of_one_kind_whose_tokens_and_keys_are_mostly_real(
    sizes: list[tuple[int, int]], max_padding: float, max_tokens: int
) -> None:
    whole = runs_of(*[(length, length) for length, more in sizes if not more])
    windows = runs_of(*[(n, n + more) for n, more in sizes if more], is_window=True)
    found = list(batches([*windows, *whole], max_padding, max_tokens))
    assert sum(map(len, found)) == len(sizes)
    assert {id(run) for batch in found for run in batch} == {id(run) for run in windows + whole}
    for batch in found:
        assert len({run.is_window for run in batch}) == 1
        lengths = [run.length for run in batch]
        keys = [run.num_keys for run in batch]
        assert len(batch) == 1 or max(lengths) * len(batch) <= max_tokens
        assert sum(lengths) >= (1 - max_padding) * max(lengths) * len(batch) - 1e-9
        assert sum(keys) >= 0.5 * max(keys) * len(batch)


@pytest.mark.parametrize("starts", [(5,), (5, 5, 5), (5, 9), (9, 5), (5, 5, 9), (9, 5, 5)])
def test_windows_share_their_positions_only_if_all_begin_alike(starts: tuple[int, ...]) -> None:
    windows = runs_of(*[(3, 20) for _ in starts], is_window=True)
    for window, start in zip(windows, starts, strict=True):
        window.first = start
    batch = text_batch(windows, 1, None)
    assert np.broadcast_to(batch.positions, batch.input_ids.shape).tolist() == [
        [start, start + 1, start + 2] for start in starts
    ]
    assert len(batch.positions) == (1 if len(set(starts)) == 1 else len(starts))


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


@pytest.mark.parametrize("count", [9, 20, 64])
def test_the_size_that_fitted_is_kept_and_a_larger_one_is_rarely_tried(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    body, reads = TinyBody(fits=8), reads_of(*[8] * count)
    reader = make_reader(body)
    while body.num_passes < 119:
        reader.read(reads)
    assert body.num_passes - len(body.shapes) <= 5
    assert sum(rows for rows, _ in body.shapes) % count == 0
    assert len([line for line in caplog.messages if "expandable_segments" in line]) == 1

    body.fits = 1000  # what else was on the GPU has ended
    for _ in range(1500):
        reader.read(reads)
    assert body.shapes[-1] == (count, 8)


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
    together = make_reader(body).read([plain, guided, plain])
    assert body.shapes == [(3, 5)]
    for read, reading in zip([plain, guided], together, strict=False):
        [alone] = make_reader(TinyBody()).read([read])
        assert_same(reading.logprobs, alone.logprobs)


def test_named_tokens_and_entropies_are_those_of_the_guided_distribution(llada: Path) -> None:
    predictor = LLM(str(llada)).predictor
    ids, bare = np.arange(9), np.full(9, 8)
    raw = predictor.read([Read(text, ids, Distribution()) for text in (ids, bare)])
    given, unconditional = (reading.logprobs.astype(np.float64) for reading in raw)
    readout = TopLogProbs(3, (8, 0), ids, with_entropy=True)
    guided = Read(ids, ids, readout, guidance=Guidance(bare, 1.5))
    plain = Read(ids, ids, replace(readout, targets=ids[::-1].copy()))
    others = [Read(ids, ids, TopLogProbs(3)), Read(bare, ids, TokenLogProbs(ids))]
    together = predictor.read([plain, *others, guided])
    for read, reading, logits in (
        (guided, together[3], unconditional + 2.5 * (given - unconditional)),
        (plain, together[0], given),
    ):
        expected = naive_readout(logits, read)
        np.testing.assert_array_equal(reading.token_ids, expected.token_ids)
        np.testing.assert_allclose(reading.logprobs, expected.logprobs, atol=1e-5)
        np.testing.assert_allclose(reading.confidences, expected.confidences, atol=1e-5)


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
