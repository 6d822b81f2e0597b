"""Texts of any lengths in one line, without padding or masks: by torch's flash kernel.

It takes sequences: queries that stand together, and the keys that all of them see, the
first so many from some place on. So a text is one, or each block of it; and the keys of a
window stay where they are cached.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.decoder.kv_cache import CachedPass
from dise_core import Attention, Ids

LONG = 1024
"""From how many keys on texts that need neither masks nor copies do without: torch's
other kernels divide the keys of few queries, and those of long texts are faster.
"""

MIN_QUERIES = 64
"""The fewest queries in a mean sequence, heads that share keys counted one by one: the
kernel computes 128 at a time, but half of the keys of a text in blocks; masks all.
"""

FEW, QUERIES, KEYS = 8, 128, 512
"""Multiples to which the number of sequences, and the longest, are rounded up: what the
kernel does is the same, and hardly a shape is new.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """queries: where those of each of S sequences begin, and the last ends, int32 [S + 1];
    keys: where their keys begin, int32 [S + 1], and seen: how many of them, int32 [S].
    longest: at most so many queries, and keys. shared: how many heads of queries share
    one of keys, if they are to be a sequence's queries as well, so that it has enough.
    """

    queries: Tensor
    keys: Tensor
    seen: Tensor
    longest: tuple[int, int]
    shared: int

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Return attention's output [M, H, D] for queries [M, H, D] over keys and values
        [K, H', D].
        """
        heads = (len(query), key.shape[1], self.shared, query.shape[2])
        if self.shared > 1:
            query = query.reshape(heads).transpose(1, 2).flatten(0, 1)
        # What torch.nn.attention.varlen calls, less the 30 us that it takes a call.
        [attended, *_] = torch.ops.aten._flash_attention_forward(
            query, key, value, self.queries, self.keys, *self.longest, 0.0, False, False,
            scale=scale, seqused_k=self.seen,
        )  # fmt: skip
        if self.shared > 1:
            attended = attended.view(heads[0], heads[2], heads[1], heads[3]).transpose(1, 2)
            attended = attended.flatten(1, 2)
        result: Tensor = attended
        return result


class Ragged:
    """A batch as a line of T tokens, `batch` [1, T], of which `rows` are read, int64 [R],
    and which keys each sees.
    """

    def __init__(
        self, whole: TextBatch, rows: Ids, attention: Attention, groups: int, device: torch.device
    ) -> None:
        """whole: padded, without overlays. rows: of it, flattened, int64 [R], ascending.
        groups: how many heads of queries share one of keys.
        """
        shape, (is_key, num_keys) = whole.input_ids.shape, whole.keys
        self._whole, self._groups, self._device = whole, groups, device
        real = np.flatnonzero(np.ones(shape) if whole.is_real is None else whole.is_real)
        self._real, self._text = real, real // shape[1]
        lengths = np.full(shape[0], num_keys) if is_key is None else is_key.sum(1)
        positions = np.broadcast_to(whole.positions, shape).ravel()[real]
        self._seen = np.minimum(attention.num_seen(positions), lengths[self._text])
        self._starts = np.cumsum(lengths) - lengths
        self.rows = np.searchsorted(real, rows)
        self.batch = TextBatch(whole.input_ids.ravel()[real][None], None, positions[None])

    @property
    def is_better(self) -> bool:
        """Return whether this is cheaper than the padded batch with its masks."""
        (is_key, num_keys), cached = self._whole.keys, self._whole.cached
        count, num_tokens = len(self._first(np.arange(len(self._real)))), len(self._real)
        if count > len(self._starts) and num_tokens * self._groups < MIN_QUERIES * count:
            return False
        is_padded = is_key is not None or num_tokens < self._whole.input_ids.size
        if num_keys < LONG or is_padded or (self._seen < num_keys).any():
            return True
        return cached is not None and bool(cached.texts) and cached.strides() is None

    def cached(self) -> CachedPass | None:
        """Return what the pass writes to the KV cache, and reads from it."""
        if self._whole.cached is None:
            return None
        index = np.zeros(self._whole.input_ids.size, np.int64)
        index[self._real] = np.arange(len(self._real))
        cached, starts = self._whole.cached.in_line(index)
        self._starts = self._starts if starts is None else starts
        return cached

    def all(self) -> Sequences:
        """Return those of all tokens, as Masks does; after `cached`."""
        return self._sequences(np.arange(len(self._real)))

    def at(self, columns: Ids) -> Sequences:
        """Return those of the rows that are read. columns: of them, then of padding,
        int64 [1, M].
        """
        return self._sequences(columns[0, : len(self.rows)])

    def _sequences(self, columns: Ids) -> Sequences:
        first = self._first(columns)
        among, count = columns[first], -(-len(first) // FEW) * FEW
        queries = np.full(count + 1, len(columns))
        keys, seen = np.zeros(count + 1, np.int64), np.zeros(count, np.int64)
        queries[: len(first)], seen[: len(first)] = first, self._seen[among]
        keys[: len(first)] = self._starts[self._text[among]]
        shared = self._groups if len(first) > len(self._starts) else 1
        longest = int(np.diff(queries).max()) * shared, int(seen.max())
        most = (-(-longest[0] // QUERIES) * QUERIES, -(-longest[1] // KEYS) * KEYS)
        parts = np.concatenate([queries * shared, keys, seen]).astype(np.int32)
        moved = torch.from_numpy(parts).to(self._device)
        ends = (moved[: count + 1], moved[count + 1 : -count])
        return Sequences(*ends, moved[-count:], most, shared)

    def _first(self, columns: Ids) -> Ids:
        """Return where the sequences of these queries begin, int64 [S]."""
        text, seen = self._text[columns], self._seen[columns]
        is_new = (np.diff(text, prepend=-1) != 0) | (np.diff(seen, prepend=-1) != 0)
        return np.flatnonzero(is_new)
