"""An adapter's own logits are answered as a naive loop over them answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dise_adapters import answer
from dise_adapters.local.reading.reader import rows_at_once
from dise_core import (
    Candidates,
    Distribution,
    InputError,
    Noise,
    Read,
    Readout,
    TokenLogProbs,
    TopLogProbs,
)
from dise_core.testing.toy_model import naive_readout

VOCAB = 24
DRAWN = Candidates(0.7, top_p=0.9, top_k=9, noise=Noise(3), forbidden=(23,))


def all_readouts(targets: np.ndarray) -> list[Readout]:
    return [
        TokenLogProbs(targets), Distribution(),
        TopLogProbs(3), TopLogProbs(2, (4, 0), targets, with_entropy=True), DRAWN,
        replace(DRAWN, is_tempered=True, confidence="margin", bias=((4, 2.0),)),
        Candidates(confidence="entropy", unranked=(1, 2), allowed=(1, 2, 3)),
        Candidates(),
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("num_rows", [0, 1, 90])
def test_every_readout_is_the_naive_one_in_chunks_and_leaves_the_logits(
    dtype: torch.dtype, num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dise_adapters.local.reading.reader.CPU_ROWS", 31)
    monkeypatch.setattr("dise_adapters.local.reading.reader.MAX_LOGITS", 0)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_rows, VOCAB, generator=generator).to(dtype).requires_grad_()
    before, positions = logits.detach().clone(), np.arange(num_rows)
    targets = np.random.default_rng(0).integers(0, VOCAB, num_rows)
    for readout in all_readouts(targets):
        read = Read(np.zeros(num_rows, np.int64), positions, readout)
        reading = answer(logits, read)
        assert torch.equal(logits, before)
        if num_rows:
            expected = naive_readout(before.double().numpy(), read)
            assert reading.token_ids.tolist() == expected.token_ids.tolist()
            for part in ("logprobs", "confidences"):
                values = getattr(reading, part), getattr(expected, part)
                np.testing.assert_allclose(*values, atol=2e-5)


@pytest.mark.parametrize(("vocabulary", "num_rows"), [(8192, 512), (126_464, 64), (262_144, 64)])
def test_no_vocabulary_is_so_large_that_few_rows_of_logits_are_computed_at_one_time(
    vocabulary: int, num_rows: int
) -> None:
    assert rows_at_once(vocabulary, torch.device("cpu")) == num_rows


def test_a_real_vocabulary_is_the_naive_one_too() -> None:
    logits = torch.randn(1, 126_464, generator=torch.Generator().manual_seed(0))
    read = Read(np.zeros(1, np.int64), np.arange(1), replace(DRAWN, confidence="margin"))
    reading, expected = answer(logits, read), naive_readout(logits.double().numpy(), read)
    assert reading.token_ids.tolist() == expected.token_ids.tolist()
    np.testing.assert_allclose(reading.confidences, expected.confidences, atol=2e-5)


def test_another_number_of_rows_is_refused() -> None:
    read = Read(np.zeros(2, np.int64), np.arange(2), Candidates())
    with pytest.raises(InputError, match=r"must be \[2, V\], not \[3, 24\]"):
        answer(torch.zeros(3, VOCAB), read)
