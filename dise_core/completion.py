"""Reads as the model runs them: without what its attention ignores, and a text that ends inside a
block completed as the trainers of block-causal models complete it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import overload

import numpy as np

from dise_core.arrays import Ids
from dise_core.model import BlockCausal, ModelInfo
from dise_core.reading import CacheHint, Read


def heeded(read: Read, info: ModelInfo) -> Read:
    """Return the Read without its context where the model's attention ignores that."""
    if read.context_ids is None or isinstance(info.attention, BlockCausal):
        return read
    guidance = read.guidance and replace(read.guidance, context_ids=None)
    return replace(read, context_ids=None, guidance=guidance)


def completed(read: Read, info: ModelInfo) -> Read:
    """Return the Read as the model runs it; every predictor calls this first.

    Under block-causal attention a text that ends inside a block goes on with end tokens up to the
    block's border, though never beyond max_length: an incomplete block would be seen with fewer
    neighbours than any in training. The Read asks nothing about those tokens. A model without an
    end token, and every other attention, gets the text as it is.
    """
    read = heeded(read, info)
    if not isinstance(info.attention, BlockCausal) or info.special.eos_id is None:
        return read
    num_tokens = len(read.token_ids)
    more = _border(num_tokens, info) - num_tokens
    if more <= 0:
        return read
    ends = np.full(more, info.special.eos_id)
    guidance, cache = read.guidance, read.cache
    if guidance is not None:
        ids = _joined(guidance.token_ids, ends)
        guidance = replace(guidance, token_ids=ids, context_ids=_joined(guidance.context_ids, ends))
    if cache is not None:
        cache = _completed_hint(cache, num_tokens, info)
    ids, context = _joined(read.token_ids, ends), _joined(read.context_ids, ends)
    return replace(read, token_ids=ids, context_ids=context, guidance=guidance, cache=cache)


def _border(num_tokens: int, info: ModelInfo) -> int:
    """Return where the last block of a text of num_tokens >= 0 tokens ends."""
    assert isinstance(info.attention, BlockCausal)
    length = info.attention.length
    return min(-(-num_tokens // length) * length, info.max_length)


@overload
def _joined(ids: Ids, ends: Ids) -> Ids: ...
@overload
def _joined(ids: None, ends: Ids) -> None: ...
def _joined(ids: Ids | None, ends: Ids) -> Ids | None:
    return None if ids is None else np.concatenate([ids, ends])


def _completed_hint(hint: CacheHint, num_tokens: int, info: ModelInfo) -> CacheHint:
    """Return the hint for the completed text: a window that reached the end still does."""
    window = hint.window
    if window is not None and window[1] == num_tokens:
        window = (window[0], _border(num_tokens, info))
    return replace(hint, window=window, most=_border(hint.most, info))
