"""Published formats in blocks against an independent model: texts that end inside a block, and
blocks that run against the cached keys and values of those before them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dise_adapters.checkpoint.hub import read_config
from dise_core import LLM, Distribution, Read
from dise_core.model import BlockCausal
from dise_core.reading import CacheHint, CacheSlot
from tests.published import PUBLISHED

BLOCKS = {name: each for name, each in PUBLISHED.items() if isinstance(each.attention, BlockCausal)}


@pytest.fixture(autouse=True)
def _fresh_configs() -> None:
    read_config.cache_clear()


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_text_that_ends_inside_a_block_is_read_with_end_tokens(
    tmp_path: Path, name: str, implementation: str
) -> None:
    published = BLOCKS[name]
    folder, length = published.write(tmp_path), published.attention.length
    llm, reference = (
        LLM(str(folder), attn_implementation=implementation),
        published.reference(folder),
    )
    random = np.random.default_rng(1)
    texts = [random.integers(0, 70, n) for n in (1, 37, 90)]
    reads = [Read(ids, np.arange(len(ids)), Distribution()) for ids in texts]
    for ids, reading in zip(texts, llm.predictor.read(reads), strict=True):
        padding = min(96, -(-len(ids) // length) * length) - len(ids)
        expected = reference.logprobs([*ids.tolist(), *[published.eos_id] * padding])
        assert np.abs(reading.logprobs - expected[: len(ids)].numpy()).max() < 1e-5


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_against_cached_ones_is_answered_exactly(tmp_path: Path, name: str) -> None:
    published = BLOCKS[name]
    folder, length = published.write(tmp_path), published.attention.length
    predictor, slot = LLM(str(folder)).predictor, CacheSlot()
    ids = np.random.default_rng(2).integers(0, 70, 3 * length)
    start = 2 * length
    known = Read(ids[:start], np.arange(start), Distribution(), cache=CacheHint(slot, None, 96))
    window = CacheHint(slot, (start, len(ids)), 96)
    predictor.read([known])
    [reading] = predictor.read(
        [Read(ids, np.arange(start, len(ids)), Distribution(), cache=window)]
    )
    expected = published.reference(folder).logprobs(ids.tolist())[start:].numpy()
    assert reading.is_exact
    assert reading.share < 0.5
    assert np.abs(reading.logprobs - expected).max() < 1e-5
