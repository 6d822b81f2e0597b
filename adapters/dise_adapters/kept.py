"""Keys and values that are kept from one pass to a later one, in one block of memory for all texts."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dise_core.arrays import Ids
from dise_core.reading import CacheSlot


class KeptKeys:
    """Places for the keys and values of `max_tokens` tokens, allocated at the first use. Rotated keys, [L, 2, T, H, D].

    A slot holds its places until its last reference goes, from whatever thread that is.
    """

    def __init__(self, shape: tuple[int, int, int], max_tokens: int, device: torch.device, dtype: torch.dtype) -> None:
        """shape: layers, key-value heads, numbers of a head."""
        layers, heads, size = shape
        self._shape = (layers, 2, max_tokens, heads, size)
        self._options: dict[str, Any] = {"device": device, "dtype": dtype}
        self._memory: Tensor | None = None
        self._free = np.arange(max_tokens)
        self._places: weakref.WeakKeyDictionary[CacheSlot, tuple[Ids, weakref.finalize]] = weakref.WeakKeyDictionary()  # type: ignore[type-arg]
        self._returned: deque[Ids] = deque()

    def holds(self, slot: CacheSlot, length: int) -> bool:
        """Return whether a text of that length is kept under the slot."""
        return slot in self._places and len(self.places(slot)) == length

    def take(self, slot: CacheSlot, length: int) -> bool:
        """Give the slot places for a text of that length; return False, and keep nothing for it, if there is no room."""
        if self.holds(slot, length):
            return True
        if slot in self._places:
            self._places.pop(slot)[1]()  # its text has another length now
        while self._returned:
            self._free = np.concatenate([self._free, self._returned.popleft()])
        if length > len(self._free):
            return False
        places, self._free = self._free[:length], self._free[length:]
        self._places[slot] = places, weakref.finalize(slot, self._returned.append, places)
        return True

    def places(self, slot: CacheSlot) -> Ids:
        """Return where the slot's tokens are kept, int64 [N]."""
        return self._places[slot][0]

    @property
    def num_free(self) -> int:
        """Tokens for which there is room."""
        return len(self._free) + sum(map(len, self._returned))

    def memory(self) -> Tensor:
        """Return the memory itself."""
        if self._memory is None:
            self._memory = torch.zeros(self._shape, **self._options)
        return self._memory


@dataclass(slots=True)
class Pass:
    """One pass over a batch of texts that are kept, in the shape in which transformers' attention asks for a cache.

    positions: where each token of the batch stands in its text, int64 [B, W]. Rows that are padded have is_real False there.
    written: places of the real tokens, int64. read: places of each text's tokens, [B, N], padded, and is_key [B, N]; None
    where the batch holds the whole texts.
    """

    memory: Tensor
    positions: Tensor
    is_real: Tensor
    written: Tensor
    read: Tensor | None = None
    is_key: Tensor | None = None

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Keep the batch's keys and values [B, H, W, D]; return those to attend to: the same, or all kept, [B, H, N, D]."""
        kept = self.memory[layer]
        for index, fresh in enumerate((key, value)):
            kept[index, self.written] = fresh.transpose(1, 2)[self.is_real].to(kept.dtype)
        if self.read is None:
            return key, value
        everything = kept[:, self.read].transpose(2, 3)
        return everything[0].to(key.dtype), everything[1].to(value.dtype)


def padded(rows: Sequence[Ids], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return rows of places as one tensor [B, N], padded with 0, and which are real."""
    width = max(map(len, rows))
    places, is_real = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.bool_)
    for index, row in enumerate(rows):
        places[index, : len(row)], is_real[index, : len(row)] = row, True
    return torch.from_numpy(places).to(device), torch.from_numpy(is_real).to(device)
