"""Which keys and values may be cached between denoising steps. Source: Fast-dLLM."""

from __future__ import annotations

import numpy as np

from dise_core.arrays import Ids
from dise_core.reading import CacheHint, CacheKind, CacheSlot


class Caching:
    """The cache hints of the steps that write one response, or rewrite its tail.

    A block's first step computes the whole text; each later step computes everything from the
    block's start on ("prefix") or the block alone ("dual"). The context before a tail is computed
    once, while the whole tail is masked, and reused for later tails behind the same context. This
    object is mutable, so it belongs to the plan that writes the response. A model with full
    attention has nothing to cache exactly; for block-causal ones see FinishedBlocks.
    """

    def __init__(self, kind: CacheKind, most: int = 0) -> None:
        """most: the tokens that the text may grow to; 0 for one that does not grow."""
        self._kind = kind
        self.most = most
        self._slot = CacheSlot()
        self._context: Ids = np.zeros(0, np.int64)
        self._is_cached = False

    def begin(self, context: Ids) -> None:
        """Start writing after the context, int64 [C]; empty where no context is to be reused."""
        self._is_cached = self._is_cached and np.array_equal(context, self._context)
        self._context = context.copy()

    def hint(self, block: Ids, length: int, is_first: bool) -> CacheHint | None:
        """Return the hint for one step of a block in a text of `length` tokens; None without a
        cache. is_first: whether it is the block's first step.
        """
        if self._kind in ("none", "exact"):
            return None
        if is_first:
            num_cached = len(self._context) if self._is_cached else 0
            window = (num_cached, length) if num_cached else None
            return CacheHint(self._slot, window, max(self.most, length))
        stop = length if self._kind == "prefix" else int(block[-1]) + 1
        return CacheHint(self._slot, (int(block[0]), stop), max(self.most, length))

    def end_block(self) -> None:
        """Record that a block is written: its first step has cached the context."""
        self._is_cached = True
