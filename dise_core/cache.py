"""What may be cached from step to step while a response is written. Source: Fast-dLLM."""

from __future__ import annotations

import numpy as np

from dise_core.arrays import Ids
from dise_core.reading import CacheHint, CacheKind, CacheSlot


class Caching:
    """The cache hints of the steps that write one response, and of those that rewrite its tail.

    A block's first step runs the text; each later one what follows the block's start ("prefix") or
    the block alone ("dual"). What stands before a tail runs once, while the whole tail is masked:
    for this tail, and for all later ones behind the same context. It changes from step to step, so
    it belongs to the plan that writes.
    """

    def __init__(self, kind: CacheKind) -> None:
        self._kind = kind
        self._slot = CacheSlot()
        self._context: Ids = np.zeros(0, np.int64)
        self._is_cached = False

    def begin(self, context: Ids) -> None:
        """Begin to write behind the context, int64 [C]; no token of it where nothing stays."""
        self._is_cached = self._is_cached and np.array_equal(context, self._context)
        self._context = context.copy()

    def hint(self, block: Ids, length: int, is_first: bool) -> CacheHint | None:
        """Return what may be cached at a step of a block in a text of that length; None for
        nothing. is_first: whether it is the block's first step.
        """
        if self._kind == "none":
            return None
        if is_first:
            num_cached = len(self._context) if self._is_cached else 0
            return CacheHint(self._slot, (num_cached, length) if num_cached else None)
        stop = length if self._kind == "prefix" else int(block[-1]) + 1
        return CacheHint(self._slot, (int(block[0]), stop))

    def end_block(self) -> None:
        """Take note that a block is written, its first step with it."""
        self._is_cached = True
