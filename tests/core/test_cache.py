"""What a plan may cache from step to step. What a model caches: tests/adapters/test_cache.py."""

from collections.abc import Sequence

import numpy as np
import pytest

from dise_core import Read, Reading, SamplingParams, drive
from dise_core.denoise import Denoiser
from dise_core.noise import Noise
from dise_core.reading import CacheKind
from dise_core.testing.toy_model import MASK, ToyPredictor
from dise_strategies.unmasking.ranked import LowConfidence

PROMPT = np.array([1, 2, 3])
CANVAS = np.array([1, 2, 3, 4, 5, *[MASK] * 8])
"""A tail of 8 masks behind a context of 5 tokens."""

Window = tuple[int, int] | None


def denoiser(cache: CacheKind) -> Denoiser:
    params = SamplingParams(max_tokens=8, block_length=4, tokens_per_step=2, cache=cache)
    return Denoiser(ToyPredictor().info, LowConfidence(), Noise(0), params)


class Watched(ToyPredictor):
    """Keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Read] = []

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        self.asked += reads
        return super().read(reads)

    def windows(self) -> list[Window]:
        """Return the window of each read so far, and forget them."""
        windows = [read.cache.window for read in self.asked if read.cache]
        self.asked = []
        return windows


@pytest.mark.parametrize(("cache", "ends"), [("prefix", (11, 11)), ("dual", (7, 11))])
def test_a_response_runs_whole_at_each_blocks_first_step(
    cache: CacheKind, ends: tuple[int, int]
) -> None:
    model = Watched()
    drive(denoiser(cache).write(PROMPT, 8), model.read)
    assert model.windows() == [None, (3, ends[0]), None, (7, ends[1])]


def test_a_tails_context_runs_once_for_all_tails_of_one_caching() -> None:
    model, writer = Watched(), denoiser("prefix")
    caching = writer.caching()
    drive(writer.denoise(CANVAS, 5, 3, caching=caching), model.read)
    assert model.windows() == [None, (5, 13), (5, 13), (9, 13)]
    drive(writer.denoise(np.append(CANVAS, MASK), 5, 3, caching=caching), model.read)
    assert model.windows() == [(5, 14), (5, 14), (5, 14), (9, 14), (5, 14)]
    drive(writer.denoise(CANVAS, 5, 3), model.read)
    assert model.windows()[0] is None, "a Caching of its own"


def test_another_context_runs_again() -> None:
    model, writer = Watched(), denoiser("dual")
    caching = writer.caching()
    other = CANVAS.copy()
    other[4] = 9
    for canvas in (CANVAS, other, CANVAS):
        drive(writer.denoise(canvas, 5, 3, caching=caching), model.read)
        assert model.windows() == [None, (5, 9), (5, 13), (9, 13)]


def test_a_context_counts_as_cached_only_once_its_block_is_written() -> None:
    writer = denoiser("prefix")
    caching = writer.caching()
    plan = writer.denoise(CANVAS, 5, 3, caching=caching)
    next(plan)
    plan.close()
    [read] = next(writer.denoise(CANVAS, 5, 3, caching=caching))
    assert read.cache is not None
    assert read.cache.window is None


def test_without_a_cache_there_is_no_hint() -> None:
    model = Watched()
    drive(denoiser("none").write(PROMPT, 8), model.read)
    assert model.windows() == []
