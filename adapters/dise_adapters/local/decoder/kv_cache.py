"""The KV cache: keys and values kept from pass to pass, all in one block of memory."""

from __future__ import annotations

import math
import weakref
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.decoder.prefixes import PrefixTree
from dise_adapters.local.devices import is_gpu, on_device
from dise_core import CacheHint, CacheSlot, Ids, Mask, ModelError
from dise_core.records import Record

GROWTH = 16
"""Extra room, in tokens, of a text whose hint does not say how long it may become."""

KEYS_A_TOKEN = 8
"""Cached keys, with their values, that count as one token of a batch on a GPU: where they
are gathered, they take the memory of one (LLaDA-8B; more of them, where heads share).
"""


class KVCache:
    """Rotated keys, and values: [L, 2, T, H, D], allocated at first use. T: `max_tokens`
    of texts under way, and `prefix_tokens` of finished beginnings, in `prefixes`.

    A new text gets all the rows that it may ever need, so that growing texts do not wait
    for one another. A slot holds its rows until its last reference goes, in whichever
    thread; a text that gets shorter keeps them.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        max_tokens: int,
        device: torch.device,
        dtype: torch.dtype,
        prefix_tokens: int = 0,
        step: int = 1,
    ) -> None:
        """shape: layers, key-value heads, head dimension. step: tokens in a block of a
        beginning, where the model's attention makes them exact.
        """
        layers, heads, size = shape
        self._shape = (layers, 2, max_tokens + prefix_tokens, heads, size)
        self._most = max_tokens
        rows = np.arange(max_tokens, self._shape[2])
        self.prefixes = PrefixTree(rows, step) if prefix_tokens else None
        self.device, self._counts_windows = device, is_gpu(device)
        self._options: Record = {"device": device, "dtype": dtype}
        self._memory: Tensor | None = None
        self._free = np.arange(max_tokens)
        self._texts: weakref.WeakKeyDictionary[CacheSlot, _Text] = weakref.WeakKeyDictionary()
        self._returned: deque[_Text] = deque()

    def missing(self, hint: CacheHint, length: int) -> int:
        """Return how many tokens of room a text lacks; 0 if it can never be cached."""
        if hint.slot in self._texts or length > self._most:
            return 0
        return min(max(length, hint.most or length + GROWTH), self._most)

    def counted(self, hint: CacheHint, length: int) -> int:
        text = self._around_window(hint, length) if self._counts_windows else None
        if text is None or hint.window is None or length > len(text.rows):
            return length
        start, stop = hint.window
        return min(length, stop - min(start, text.current) + length // KEYS_A_TOKEN)

    def holds(self, hint: CacheHint, length: int) -> bool:
        """Return whether a text of that length is cached outside the window, and fits."""
        text = self._around_window(hint, length)
        if text is None or not self.take(hint, length):
            return False
        text.is_computed = True
        return True

    def _around_window(self, hint: CacheHint, length: int) -> _Text | None:
        """Return the text of the slot, if it is cached outside the window."""
        text = self._texts.get(hint.slot)
        if text is None or hint.window is None or not text.is_computed:
            return None
        start, stop = hint.window
        is_cached = text.length == length or (stop == length and text.length >= start)
        return text if is_cached else None

    def take(self, hint: CacheHint, length: int) -> bool:
        """Give the slot room for the text, all that it may ever need, and return True.
        What it held no longer counts, whether or not the pass that is to compute the text
        succeeds.

        Return False without enough room, and for a text that outgrows what it has; what
        the slot held is then no longer valid. So whether a text is cached never depends
        on other texts.
        """
        text = self._texts.get(hint.slot)
        if text is None and 0 < (missing := self.missing(hint, length)) <= self.num_free:
            rows, self._free = np.split(self._free, [missing])
            text = self._texts[hint.slot] = _Text(rows)
            # The finalizer may run in any thread, so it only appends; num_free collects
            # the rows.
            weakref.finalize(hint.slot, self._returned.append, text)
        if text is None or length > len(text.rows):
            self._forget(hint.slot)
            return False
        text.length, text.is_computed = length, False
        return True

    def _forget(self, slot: CacheSlot) -> None:
        if slot in self._texts:
            self._texts[slot].length = self._texts[slot].current = 0

    def forget(self) -> None:
        """Forget all keys and values, those of other weights; texts keep their rows."""
        for slot in list(self._texts):
            self._forget(slot)
        if self.prefixes is not None:
            self.prefixes.clear()

    def current(self, slot: CacheSlot) -> int:
        """Return how many tokens from the text's start on have the keys and values of the
        text that was read last. Those behind a window are older than it.
        """
        return self._texts[slot].current

    def computed(self, slot: CacheSlot, first: int, stop: int) -> None:
        """Record that a pass has cached the slot's tokens [first, stop)."""
        text = self._texts[slot]
        text.current = min(stop, text.length)
        text.is_computed |= text.current == text.length
        text.kept = min(text.kept, first)

    def is_new(self, slot: CacheSlot) -> bool:
        return slot not in self._texts

    def adopt(self, hint: CacheHint, ids: Ids, rows: Ids) -> bool:
        """Give the slot room for the text `ids`, int64 [N], and copy the keys and values
        of its beginning from these rows of memory, int64 [< N]. Return False without
        enough room.
        """
        if not self.take(hint, len(ids)):
            return False
        # Copied, not shared: a pass writes to the rows of the slot, and a policy that edits, or a
        # reviser, would change keys and values that other texts are reading.
        self._copy(rows, self.rows(hint.slot)[: len(rows)])
        self.computed(hint.slot, 0, len(rows))
        return True

    def keep(self, slot: CacheSlot, ids: Ids, salt: str = "") -> None:
        """Keep a beginning of the slot's text, int64 [N], finished and current, in
        `prefixes`, for texts of the same salt.
        """
        text, prefixes = self._texts[slot], self.prefixes
        if prefixes is None or (count := prefixes.in_blocks(len(ids))) <= text.kept:
            return
        # Set before the attempt: a full tree is not asked again at each pass, but when the next
        # block is finished. `computed` sets it back where a pass begins before it, as that pass
        # may have written other tokens there.
        text.kept = count
        if (lease := prefixes.begin(ids[:count], count, salt)) is not None:
            self._copy(text.rows[lease.num_known : count], lease.rows[lease.num_known :])
            lease.finished = ids[:count]
            prefixes.end(lease)

    def _copy(self, rows: Ids, to: Ids) -> None:
        memory = self.memory()
        sources, targets = on_device(self.device, rows, to)
        memory[:, :, targets] = memory[:, :, sources]

    def rows(self, slot: CacheSlot) -> Ids:
        """Return the rows of memory that hold the slot's tokens, int64 [N]."""
        text = self._texts[slot]
        return text.rows[: text.length]

    @property
    def num_free(self) -> int:
        while self._returned:
            self._free = np.concatenate([self._free, self._returned.popleft().rows])
        return len(self._free)

    def memory(self) -> Tensor:
        """Return the memory, [L, 2, T, H, D]. Raises ModelError if too little is free."""
        if self._memory is None:
            try:
                self._memory = torch.zeros(self._shape, **self._options)
            except RuntimeError as error:
                gib = math.prod(self._shape) * self._options["dtype"].itemsize / 2**30
                raise ModelError(
                    f"no memory to cache keys and values of {self._shape[2]} tokens ({gib:.1f} "
                    "GiB): lower max_cache_tokens or prefix_cache_tokens"
                ) from error
        return self._memory


@dataclass(slots=True, eq=False)
class _Text:
    """A cached text: its rows of memory, its length in tokens, how many of them are
    current, and kept as a beginning, and whether passes have computed all.
    """

    rows: Ids
    length: int = 0
    current: int = 0
    kept: int = 0
    is_computed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class CachedPass:
    """One forward pass that writes to the KV cache, and may read from it.

    fresh: the tokens of the flattened batch to be cached, int64 [T]; written: the row of
    memory for each, int64 [T]. read: the rows of memory of each text, padded; the first
    of all and the distance between two texts', which copies nothing, if they lie side by
    side, else int64 [B * N]; None if the batch holds whole texts. shape: B and N. is_key:
    which of those are not padding, bool [B, N]; None if all; on the host.
    """

    memory: Tensor
    fresh: Tensor
    written: Tensor
    read: Tensor | tuple[int, int] | None = None
    shape: tuple[int, int] = (0, 0)
    is_key: Mask | None = None

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Cache one layer's keys and values [B, W, H, D]. Return those to attend to: the
        same, or with `read` those of the whole texts, [B, N, H, D].
        """
        memory = self.memory[layer]
        for index, part in enumerate((key, value)):
            memory[index, self.written] = part.flatten(0, 1)[self.fresh].to(memory.dtype)
        if self.read is None:
            return key, value
        count, width = self.shape
        if isinstance(self.read, Tensor):
            keys, values = memory[:, self.read].view(2, count, width, *memory.shape[2:])
        else:
            first, step = self.read
            rooms = memory[:, first : first + count * step]
            keys, values = rooms.view(2, count, step, *memory.shape[2:])[:, :, :width]
        return keys.to(key.dtype), values.to(value.dtype)
