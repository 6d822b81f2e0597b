"""The KV cache: keys and values from one pass to a later one, one block of memory for all texts."""

from __future__ import annotations

import math
import weakref
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dise_core.arrays import Ids, Mask
from dise_core.errors import ModelError
from dise_core.reading import CacheHint, CacheSlot
from dise_core.records import Record

GROWTH = 16
"""Tokens that a new text may grow by in the room that it is given."""


class KVCache:
    """Rows for the keys and values of `max_tokens` tokens, allocated at the first use. Rotated
    keys, [L, 2, T, H, D].

    A new text gets room to grow, so that texts that are written on need not wait for one another. A
    slot holds its rows until its last reference goes, from whatever thread that is; a text that
    gets shorter keeps them.
    """

    def __init__(
        self, shape: tuple[int, int, int], max_tokens: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """shape: layers, key-value heads, numbers of a head."""
        layers, heads, size = shape
        self._shape = (layers, 2, max_tokens, heads, size)
        self._options: Record = {"device": device, "dtype": dtype}
        self._memory: Tensor | None = None
        self._free = np.arange(max_tokens)
        self._texts: weakref.WeakKeyDictionary[CacheSlot, _Text] = weakref.WeakKeyDictionary()
        self._returned: deque[_Text] = deque()

    def missing(self, hint: CacheHint, length: int) -> int:
        """Return for how many more tokens there must be room to cache a text of that length.

        0 for a text that could never be cached.
        """
        return 0 if length > self._shape[2] else self._missing(hint.slot, length)

    def holds(self, hint: CacheHint, length: int) -> bool:
        """Return whether all of a text of that length is cached but the window, for which there is
        room.
        """
        text = self._texts.get(hint.slot)
        if text is None or hint.window is None:
            return False
        start, stop = hint.window
        return (text.length == length or (stop == length and text.length >= start)) and self.take(
            hint.slot, length
        )

    def take(self, slot: CacheSlot, length: int) -> bool:
        """Give the slot room for a text of that length; if there is none return False, and what it
        held is out of date.
        """
        missing = self._missing(slot, length)
        if length > self._shape[2] or missing > self.num_free:
            if slot in self._texts:
                self._texts[slot].length = 0
            return False
        if slot not in self._texts:
            self._texts[slot] = _Text(self._free[:0])
            weakref.finalize(slot, self._returned.append, self._texts[slot])
        text = self._texts[slot]
        text.rows, self._free = (
            np.concatenate([text.rows, self._free[:missing]]),
            self._free[missing:],
        )
        text.length = length
        return True

    def _missing(self, slot: CacheSlot, length: int) -> int:
        if slot in self._texts:
            return max(0, length - len(self._texts[slot].rows))
        return min(length + GROWTH, self._shape[2])

    def rows(self, slot: CacheSlot) -> Ids:
        """Return where the slot's tokens are cached, int64 [N]."""
        text = self._texts[slot]
        return text.rows[: text.length]

    @property
    def num_free(self) -> int:
        """Tokens for which there is room."""
        while self._returned:
            self._free = np.concatenate([self._free, self._returned.popleft().rows])
        return len(self._free)

    def memory(self) -> Tensor:
        """Return the memory itself. Raises ModelError if the device has not that much."""
        if self._memory is None:
            try:
                self._memory = torch.zeros(self._shape, **self._options)
            except RuntimeError as error:
                gib = math.prod(self._shape) * self._options["dtype"].itemsize / 2**30
                raise ModelError(
                    f"no memory to cache keys and values of {self._shape[2]} tokens ({gib:.1f} "
                    "GiB): lower max_cache_tokens"
                ) from error
        return self._memory


@dataclass(slots=True, eq=False)
class _Text:
    """A text that is cached: its rows, int64 [>= length], and its tokens."""

    rows: Ids
    length: int = 0


@dataclass(slots=True)
class CachedPass:
    """One pass over a batch of texts that are cached.

    positions: of each token of the batch in its text, int64 [B, W], on the host. fresh: which
    tokens of the flattened batch are cached, int64 [T]; written: at which rows, int64 [T]. read:
    rows of each text's tokens, [B, N], padded; None where the batch holds the whole texts. is_key:
    which of these are real, bool [B, N]; None if all are.
    """

    memory: Tensor
    positions: Ids
    fresh: Tensor
    written: Tensor
    read: Tensor | None = None
    is_key: Mask | None = None

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Cache the batch's keys and values [B, W, H, D]; return those to attend to: the same, or
        all that are cached, [B, N, H, D].
        """
        memory = self.memory[layer]
        for index, part in enumerate((key, value)):
            memory[index, self.written] = part.flatten(0, 1)[self.fresh].to(memory.dtype)
        if self.read is None:
            return key, value
        everything = memory[:, self.read]
        return everything[0].to(key.dtype), everything[1].to(value.dtype)
