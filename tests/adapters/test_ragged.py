"""Texts in one line, by the arguments of torch's flash kernel: the same answers as with padding
and masks. The kernel is a loop over the sequences here.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from dise_adapters.local.decoder import own, ragged
from dise_core import LLM, BlockCausal, Distribution, MaskPredictor, Read
from dise_core.arrays import Ids
from dise_core.plans.reading import CacheHint, CacheSlot
from tests.block_checkpoints import BLOCK, KINDS, load, texts_of
from tests.reference_llada import checkpoint

LENGTHS = (20, 3, 12, 11, 20, 7)


class Kernel:
    """Computes attention by sequence, with planted mistakes in where keys begin and how many are
    seen. sequences: of each call; pools: the keys that it was handed.
    """

    def __init__(self) -> None:
        self.late, self.more = 0, 0
        self.sequences, self.pools = list[int](), list[int]()

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, queries: Tensor, keys: Tensor,
        most_queries: int, most_keys: int, *_: object, scale: float, seqused_k: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        self.sequences.append(int((queries.diff() > 0).sum()))
        self.pools.append(len(key))
        attended = torch.full_like(query, torch.nan)
        for (first, last), start, count in zip(
            queries.unfold(0, 2, 1).tolist(), keys.tolist(), seqused_k.tolist(), strict=False
        ):
            if first == last:
                continue
            assert last - first <= most_queries
            assert 0 < count <= most_keys
            seen = slice(start + self.late, start + self.late + count + self.more)
            heads = (part.transpose(0, 1) for part in (query[first:last], key[seen], value[seen]))
            made = scaled_dot_product_attention(*heads, scale=scale, enable_gqa=True)
            attended[first:last] = made.transpose(0, 1)
        return attended, *(query.new_empty(0) for _ in range(4))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setattr(ragged, "MIN_QUERIES", 1)
    library, kernel = torch.library.Library("aten", "IMPL"), Kernel()
    library.impl("_flash_attention_forward", kernel.__call__, "CPU")
    yield kernel
    library._destroy()


Load = Callable[[], MaskPredictor]

ROUNDED = 1e-5
"""Of a probability, where kernels add in another order; a wrong key moves it by 1e-3 and more."""


def difference(load: Load, batches: Sequence[Sequence[Read]]) -> float:
    """Return the largest difference that the kernel makes to a probability."""
    answers = []
    for has_flash in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(own, "has_flash", lambda *_, here=has_flash: here)
            predictor = load()
            readings = (reading for reads in batches for reading in predictor.read(reads))
            answers.append(
                np.concatenate([np.exp(reading.logprobs.ravel()) for reading in readings])
            )
    return float(np.abs(answers[1] - answers[0]).max())


@pytest.mark.parametrize("heads", [{}, {"n_heads": 4, "n_kv_heads": 2}])
def test_texts_of_any_lengths(tmp_path: Path, heads: dict[str, int], kernel: Kernel) -> None:
    folder = str(checkpoint(tmp_path, **heads))
    batches = [
        [Read(np.arange(n) % 40, np.arange(first, n, step), Distribution()) for n in lengths]
        for lengths in (LENGTHS, (9, 9), (5,))
        for first, step in ((0, 1), (2, 3))
    ]
    assert difference(lambda: LLM(folder).predictor, batches) < ROUNDED
    assert {1, 2, 3} <= set(kernel.sequences)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 3, 8])
def test_whole_texts_in_blocks(
    folders: dict[str, Path], kind: str, length: int, kernel: Kernel
) -> None:
    batches = [
        [Read(ids, np.arange(len(ids))[-count:], Distribution()) for ids in texts_of(*lengths)]
        for lengths in (LENGTHS, (41,))
        for count in (50, 3)
    ]
    made = difference(lambda: load(kind, folders[kind], BlockCausal(length)), batches)
    assert made < ROUNDED
    assert max(kernel.sequences) >= 41 // length


def windows(slots: Sequence[CacheSlot], lengths: Sequence[int]) -> list[list[Read]]:
    """Return Reads of whole texts, and then of the last but one block of each, changed."""
    texts, reads = texts_of(*lengths), list[list[Read]]()

    def ask(ids: Ids, slot: CacheSlot, first: int, last: int) -> Read:
        hint = CacheHint(slot, (first, last), len(ids) + 5)
        return Read(ids, np.arange(first, last), Distribution(), cache=hint)

    pairs = list(zip(texts, slots, strict=True))
    reads.append([ask(ids, slot, 0, len(ids)) for ids, slot in pairs])
    reads.append([])
    for ids, slot in pairs:
        first = len(ids) // BLOCK * BLOCK - BLOCK
        changed = np.append(ids[:first], (ids[first:] + 1) % 50)
        reads[1].append(ask(changed, slot, first, first + BLOCK))
    return reads


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("heads", [{}, {"n_heads": 4, "n_kv_heads": 2}])
def test_windows_read_cached_keys_in_place_unless_some_texts_rows_are_apart(
    tmp_path: Path, heads: dict[str, int], is_split: bool, kernel: Kernel
) -> None:
    folder = str(checkpoint(tmp_path, **heads))

    def loaded() -> MaskPredictor:
        predictor = LLM(folder, max_cache_tokens=100, prefix_cache_tokens=0).predictor
        if is_split:
            slot = CacheSlot()
            predictor.read(windows([slot], [70])[0])  # the next texts end in its rows
        return predictor

    slots = [CacheSlot() for _ in range(3)]
    assert difference(loaded, windows(slots, (27, 16, 21))) < ROUNDED
    assert (kernel.pools[-1] == 100) != is_split


@pytest.mark.parametrize(("late", "more"), [(1, 0), (0, -1), (0, 1)])
def test_a_wrong_place_or_end_of_keys_is_seen(
    folders: dict[str, Path], late: int, more: int, kernel: Kernel
) -> None:
    kernel.late, kernel.more = late, more
    for batches in ([[Read(ids, np.arange(8), Distribution()) for ids in texts_of(12, 17)]],
                    windows([CacheSlot(), CacheSlot()], (27, 16))):  # fmt: skip
        assert difference(lambda: load("qwen3", folders["qwen3"]), batches) > 1e-3
