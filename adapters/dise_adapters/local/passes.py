"""What a forward pass over a batch of rows writes to the KV cache, and what it reads from there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dise_adapters.local.batching import Window, first_of
from dise_adapters.local.kv_cache import CachedPass, KVCache
from dise_adapters.local.padding import padded_texts
from dise_core.arrays import Ids, Mask
from dise_core.rows import Row


def cached_pass(
    room: KVCache, batch: Sequence[Row], is_real: Mask | None, width: int, multiple: int
) -> CachedPass | None:
    """Return the pass of the batch; None if no row finds room. is_real: bool [B, width], False at
    padding; None without padding. multiple: the keys are padded to a multiple of it.
    """
    sequences = [row for row in batch for _ in range(row.num_sequences)]
    slots = [row.cache.slot if row.cache and _has_room(room, row) else None for row in sequences]
    spans = [
        (room.rows(slot), first_of(row), len(row.token_ids))
        for row, slot in zip(sequences, slots, strict=True)
        if slot is not None
    ]
    if not spans:
        return None
    device = room.device
    written = np.concatenate([rows[first : first + count] for rows, first, count in spans])
    # Rows that found no room share the batch, but are not cached.
    has_slot = np.array([slot is not None for slot in slots])[:, None]
    fresh = np.flatnonzero(np.broadcast_to(has_slot, (len(slots), width)) if is_real is None
                           else has_slot & is_real)  # fmt: skip
    tokens, put = (torch.from_numpy(array).to(device) for array in (fresh, written))
    cached = CachedPass(room.memory(), _positions(sequences, width), tokens, put)
    if isinstance(batch[0], Window):
        texts = [rows for rows, _, _ in spans]
        padded, cached.is_key = padded_texts(texts, multiple)
        cached.shape = (len(texts), padded.shape[1])
        cached.read = _consecutive(texts, padded.shape[1], cached.memory.shape[2])
        if cached.read is None:
            cached.read = torch.from_numpy(padded.ravel()).to(device)
    return cached


def _consecutive(texts: Sequence[Ids], width: int, most: int) -> slice | None:
    """Return the rows of the only text, and those behind them as its padding, `width` in all; None
    for several texts, and for rows that do not follow one another.
    """
    [rows, *others] = texts
    first = int(rows[0])
    if others or first + width > most or (np.diff(rows) != 1).any():
        return None
    return slice(first, first + width)


def _has_room(room: KVCache, row: Row) -> bool:
    """Return whether the row is cached: a window always, a whole row if there is room."""
    assert row.cache is not None
    return isinstance(row, Window) or room.take(row.cache, len(row.token_ids))


def _positions(sequences: Sequence[Row], width: int) -> Ids:
    """Return each token's position in its text, int64 [B, width]; [1, width] if they all agree."""
    first = np.array([first_of(row) for row in sequences])[:, None]
    return (first[:1] if (first == first[0]).all() else first) + np.arange(width)
