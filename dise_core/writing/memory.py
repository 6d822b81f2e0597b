"""What is remembered of a response, by the model's kind of attention."""

from typing import Literal

import numpy as np

from dise_core.arrays import Ids, LogProbs, num_shared
from dise_core.blocks import BlockGrid
from dise_core.models.attention import Canvases
from dise_core.models.completion import border_of, fills
from dise_core.models.info import ModelInfo
from dise_core.params.requests import SamplingParams
from dise_core.plans.reading import CacheHint, CacheSlot, Read, Reading
from dise_core.scoring.memory import Memory, asks_own_tokens


def memory_of(info: ModelInfo, params: SamplingParams, start: int = 0) -> Memory:
    """Return what a request's passes over one response, which begins at `start`, leave
    for later ones.
    """
    if info.block_length is not None:
        # A guided pass runs whole.
        is_caching = params.cache != "none" and not params.cfg_scale
        return FinishedBlocks(info, is_caching, start)
    cache = params.cache
    return StepCache(cache) if cache in ("prefix", "dual") else Memory()


class StepCache(Memory):
    """The cache hints of the steps that write one response under full attention.

    A block's first step computes the whole text; each later step computes everything from
    the block's start on ("prefix") or the block alone ("dual"). The context before a tail
    is computed once, while all of the tail is masked, and reused for later ones. Source:
    Fast-dLLM.
    """

    def __init__(self, cache: Literal["prefix", "dual"]) -> None:
        self._is_prefix = cache == "prefix"
        self._slot, self._room = CacheSlot(), 0
        self._context: Ids = np.zeros(0, np.int64)
        self._is_cached = False

    def begin(self, context: Ids, max_tokens: int) -> None:
        if max_tokens > self._room:
            self._slot, self._room, self._is_cached = CacheSlot(), max_tokens, False
        self._is_cached = self._is_cached and np.array_equal(context, self._context)
        self._context = context.copy()

    def hint(self, text: Ids, block: Ids, is_first: bool) -> CacheHint:
        window = None
        if not is_first:
            window = (int(block[0]), len(text) if self._is_prefix else int(block[-1]) + 1)
        elif self._is_cached and len(self._context):
            window = (len(self._context), len(text))
        return CacheHint(self._slot, window, self._room)

    def note(self, read: Read, reading: Reading) -> None:  # noqa: ARG002
        self._is_cached = True


class FinishedBlocks(Memory):
    """The finished blocks of one response under block-causal attention: their keys and
    values, and their tokens' log-probabilities, computed once, in one pass; of canvases,
    which begin at `start`, the log-probabilities. A block counts as known as long as the
    text up to its end is what it was then.
    """

    knows_tokens = True

    def __init__(self, info: ModelInfo, is_caching: bool = True, start: int = 0) -> None:
        self._info, self._start = info, start
        self._grid = info.blocks(start) or BlockGrid(1)
        self._is_caching = is_caching
        self._slot, self._room = CacheSlot(), 0
        self._cached: Ids = np.zeros(0, np.int64)
        """The last text that was read with a hint."""
        self._ids: Ids = np.zeros(0, np.int64)
        """The text whose log-probabilities are known, without masks."""
        self._logprobs: LogProbs = np.zeros(0, np.float32)
        """float32, as long as it; NaN where not known."""

    def begin(self, context: Ids, max_tokens: int) -> None:  # noqa: ARG002
        if max_tokens > self._room:
            self._slot, self._room, self._cached = CacheSlot(), max_tokens, self._cached[:0]

    def hint(self, text: Ids, block: Ids, is_first: bool) -> CacheHint | None:
        if isinstance(self._info.attention, Canvases):
            window = None if is_first else (int(block[0]), int(block[-1]) + 1)
            return CacheHint(self._slot, window)
        if not self._is_caching:
            return None
        num_same = min(num_shared(self._cached, text), len(text) - 1)
        start = self._grid.start_of(max(num_same, 0))
        window = (start, len(text)) if start else None
        return CacheHint(self._slot, window, border_of(max(self._room, len(text)), self._info))

    def known(self, text: Ids) -> LogProbs:
        ids = self._complete(text)
        num_known = num_shared(self._ids, ids)
        if not num_known == len(ids) == len(self._ids):
            num_known = self._grid.start_of(num_known)
        values = np.full(len(ids), np.nan, np.float32)
        values[:num_known] = self._logprobs[:num_known]
        return values[: len(text)]

    def note(self, read: Read, reading: Reading) -> None:
        """Keep the answers to a text's own tokens in its finished blocks, and which text
        is cached. Approximate answers, and last blocks read without what completes them,
        are ignored.
        """
        if read.cache is not None:
            self._cached = read.token_ids.copy()
        if not asks_own_tokens(read) or not reading.is_exact:
            return
        ids = self._complete(read.token_ids)
        masked = np.flatnonzero(ids == self._info.special.mask_id)
        stop = self._grid.start_of(int(masked[0])) if len(masked) else len(ids)
        if read.is_complete:
            stop = min(stop, self._grid.start_of(len(read.token_ids)))
        logprobs = np.full(len(ids), np.nan, np.float32)
        logprobs[: len(read.token_ids)] = self.known(read.token_ids)
        logprobs[read.positions] = reading.logprobs
        self._ids, self._logprobs = ids[:stop].copy(), logprobs[:stop]

    def _complete(self, text: Ids) -> Ids:
        return np.append(text, fills(text, self._info, self._start))
