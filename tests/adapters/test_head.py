"""The head's logits are float32, and where that costs nothing never rounded to 16 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dise_adapters.local import in_memory
from dise_adapters.local.decoder import linear
from dise_adapters.local.decoder.integers import Int8Linear
from dise_adapters.local.reading.readouts import answer_rows, group_reads
from dise_core import (
    LLM,
    Bidirectional,
    Candidates,
    Guidance,
    ModelInfo,
    Noise,
    Read,
    SpecialTokens,
    TokenLogProbs,
    TopLogProbs,
)

ROWS, WIDTH, VOCABULARY = 32, 256, 8192
EPSILON = float(torch.finfo(torch.float32).eps)


@pytest.fixture(scope="module")
def sure() -> tuple[Tensor, Tensor]:
    """States and a head, bfloat16, with a token for each row that has a logit of about 20, as a
    trained model has, and another with 1 less.
    """
    torch.manual_seed(0)
    states = torch.randn(ROWS, WIDTH)
    weight = torch.randn(VOCABULARY, WIDTH) / WIDTH**0.5
    weight[:ROWS] = states * 20 / WIDTH
    weight[ROWS : 2 * ROWS] = states * 19 / WIDTH
    return states.bfloat16(), weight.bfloat16()


@pytest.fixture
def widening(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply as CUDA does: sums of 16-bit products, in float32, that are not rounded."""

    def multiply(states: Tensor, weight: Tensor, *, out_dtype: torch.dtype) -> Tensor:
        return states.to(out_dtype) @ weight.to(out_dtype)

    monkeypatch.setattr(torch, "mm", multiply)
    monkeypatch.setattr(linear, "keeps_float32", lambda _: True)


def rounding(states: Tensor, weight: Tensor) -> float:
    """Return how far float32 sums of these products, in whatever order a processor adds them, may
    be off: half of EPSILON of the sum of their sizes for each addition (Higham, 2002, Eq. 3.4).
    """
    sizes = states.double().abs() @ weight.double().abs().t()
    return WIDTH * EPSILON / 2 * float(sizes.max())


def rounding_of_logprobs(states: Tensor, weight: Tensor) -> float:
    """Return the same for log-probabilities: two logits, and a sum of VOCABULARY exponentials."""
    return 2 * rounding(states, weight) + VOCABULARY * EPSILON / 2


def answers(logits: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return what readouts give: the log-probability of each row's second token, and the log-odds
    of its first.
    """
    ids, targets = np.arange(ROWS), np.arange(ROWS, 2 * ROWS)
    seconds, firsts = (
        answer_rows(logits.clone(), group, slice(0, ROWS))
        for readout in (TokenLogProbs(targets), Candidates())
        for group in group_reads({0: Read(ids, ids, readout)})
    )
    return seconds.logprobs.numpy(), firsts.confidences.numpy()


def test_answers_are_those_of_float32_which_16_bits_would_round(
    sure: tuple[Tensor, Tensor], widening: None
) -> None:
    states, weight = sure
    exact = states.double() @ weight.double().t()
    candidate, token = exact.max(-1, keepdim=True)
    odds = candidate - exact.scatter(-1, token, -torch.inf).logsumexp(-1, True)
    expected = torch.log_softmax(exact, -1)[:, ROWS:].diagonal(), odds[:, 0]
    layer = linear.torch_linear(weight)
    found, rounded = (
        answers(logits) for logits in (linear.into_float32(layer)(states), layer(states).float())
    )
    bound = rounding_of_logprobs(states, weight)
    for mine, theirs, wanted in zip(found, rounded, expected, strict=True):
        np.testing.assert_allclose(mine, wanted.numpy(), rtol=0, atol=bound)
        assert np.abs(theirs - wanted.numpy()).max() > 10 * bound


def test_a_bias_is_added_in_float32(sure: tuple[Tensor, Tensor], widening: None) -> None:
    states, weight = sure
    bias = torch.randn(VOCABULARY).bfloat16()
    layer = linear.torch_linear(weight, bias)
    got = linear.into_float32(layer)(states)
    expected = states.double() @ weight.double().t() + bias.double()
    bound = rounding(states, weight) + EPSILON * float(expected.abs().max())
    torch.testing.assert_close(got.double(), expected, atol=bound, rtol=0)
    assert (layer(states).double() - expected).abs().max() > 10 * bound


def test_an_int8_head_rounds_its_states_and_not_its_logits(sure: tuple[Tensor, Tensor]) -> None:
    states, weight = sure
    layer = Int8Linear([weight])
    logits = linear.into_float32(layer)(states)
    assert logits.dtype == torch.float32
    assert torch.equal(logits.bfloat16(), layer(states))
    assert not torch.equal(logits, layer(states).float())


def test_a_head_of_another_class_is_left_alone() -> None:
    class Doubled(nn.Linear):
        def forward(self, states: Tensor) -> Tensor:
            return 2 * super().forward(states)

    head = Doubled(4, 4)
    assert linear.into_float32(head) is head


def test_the_head_of_a_module_in_memory_is_not_rounded_either(
    sure: tuple[Tensor, Tensor], widening: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, weight = sure
    monkeypatch.setattr(in_memory, "can_pack", lambda _: False)
    bodied = nn.Embedding.from_pretrained(states)  # the states of token i are row i
    info = ModelInfo("", VOCABULARY, ROWS, SpecialTokens(0, frozenset()), Bidirectional())
    reader = in_memory.reader_of(bodied, info, head=linear.torch_linear(weight))
    ids = np.arange(ROWS)
    [reading] = reader.read([Read(ids, ids, TokenLogProbs(ids + ROWS))])
    exact = torch.log_softmax(states.double() @ weight.double().t(), -1)
    bound = rounding_of_logprobs(states, weight)
    np.testing.assert_allclose(reading.logprobs, exact[ids, ids + ROWS].numpy(), rtol=0, atol=bound)


@pytest.mark.parametrize("scale", [None, 1.5])
def test_reads_of_the_same_positions_share_their_logits(
    llada: Path, scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dise_adapters.local.reading.reader.CPU_ROWS", 8)
    monkeypatch.setattr("dise_adapters.local.reading.reader.MAX_LOGITS", 8)
    predictor = LLM(llada).predictor
    predictor.load_weights()
    reader, rows = predictor._reader, list[int]()  # type: ignore[attr-defined]
    head = reader._head

    def counted(states: Tensor) -> Tensor:
        rows.append(len(states))
        return head(states)

    monkeypatch.setattr(reader, "_head", counted)
    ids, positions = np.arange(2, 42), np.arange(1, 40, 2)
    guidance = None if scale is None else Guidance(ids[::-1].copy(), scale)
    readouts = (
        Candidates(), Candidates(1.0, noise=Noise(7)), TokenLogProbs(ids[positions]), TopLogProbs(3)
    )  # fmt: skip
    reads = [Read(ids, positions, readout, guidance=guidance) for readout in readouts]
    together = predictor.read(reads)
    assert sum(rows) == len(positions) * (1 if scale is None else 2)
    assert max(rows) == 8
    for read, reading in zip(reads, together, strict=True):
        [alone] = predictor.read([read])
        for name in ("token_ids", "logprobs", "confidences"):
            np.testing.assert_array_equal(getattr(reading, name), getattr(alone, name))
