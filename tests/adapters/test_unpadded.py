"""Batches of unequal length: the same answers with padding, without it, and from each
text alone.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dise_adapters.local.decoder import padding
from dise_adapters.local.decoder.padding import Unpadded, key_width, padding_of
from dise_core import LLM, Distribution, Read

LENGTHS = (20, 3, 12, 11, 20, 7)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_padding_goes_and_comes_back(lengths: list[int]) -> None:
    is_real = np.arange(max(lengths)) < np.array(lengths)[:, None]
    lines = Unpadded.of(is_real, is_real.shape, torch.device("cpu"))
    padded = torch.arange(is_real.size * 2).view(*is_real.shape, 2)
    packed = lines.packed(padded)
    has_gone = is_real.mean() <= 1 - padding.MIN_PADDING
    num_tokens = int(is_real.sum() if has_gone else is_real.size)
    assert len(packed) == num_tokens + padding_of(num_tokens)
    assert torch.equal(
        lines.padded(packed)[torch.from_numpy(is_real)], padded[torch.from_numpy(is_real)]
    )
    places = np.flatnonzero(is_real)
    assert torch.equal(packed[lines.which(places)], padded.flatten(0, 1)[places])


@pytest.mark.parametrize("kind", ["llada", "grouped", "dream", "llama"])
def test_answers_do_not_depend_on_the_padding(
    checkpoint_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    predictor = LLM(checkpoint_of(kind)).predictor
    reads = [Read(np.arange(n) % 40, np.arange(1, n, 2), Distribution()) for n in LENGTHS]
    alone = [predictor.read([read])[0].logprobs for read in reads]
    for least in (0.0, 1.0):
        monkeypatch.setattr(padding, "MIN_PADDING", least)
        for expected, found in zip(alone, predictor.read(reads), strict=True):
            np.testing.assert_allclose(found.logprobs, expected, atol=2e-5)


def test_a_token_attends_alike_whatever_stands_behind_its_own_keys() -> None:
    widths = [key_width(num_keys, torch.device("cpu")) for num_keys in range(1, 1100)]
    assert all(width >= num_keys for num_keys, width in enumerate(widths, 1))
    in_last = {width % 512 for width in widths}
    assert in_last == {0, *range(16, 193, 16)}
