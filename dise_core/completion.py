"""Reads as the model runs them: without what its attention ignores, and a text that ends inside a
block completed as the trainers of block-causal models complete it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import overload

import numpy as np

from dise_core.arrays import Ids
from dise_core.errors import InputError
from dise_core.model import Ability, BlockCausal, ModelInfo
from dise_core.reading import CacheHint, Read


def completed(read: Read, info: ModelInfo) -> Read:
    """Return the Read as the model runs it. The engine calls this, and every predictor for those
    who ask it directly: done twice, it changes nothing more.

    Under block-causal attention a text that ends inside a block goes on with end tokens up to the
    block's border, though never beyond max_length: an incomplete block would be seen with fewer
    neighbours than any in training. The Read asks nothing about those tokens. A model without an
    end token, a Read that is complete, and every other attention get the text as it is.
    """
    if not isinstance(info.attention, BlockCausal):
        return _without_context(read)
    if info.special.eos_id is None or read.is_complete:
        return read
    num_tokens = len(read.token_ids)
    more = border_of(num_tokens, info) - num_tokens
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


def check_abilities(read: Read, info: ModelInfo, abilities: frozenset[Ability]) -> None:
    """Raise InputError for a kind of Read that a predictor of these abilities does not answer."""
    if read.context_ids is None and not read.shadow:  # as nearly all
        return
    has_context = read.context_ids is not None and isinstance(info.attention, BlockCausal)
    kinds: dict[Ability, tuple[bool, str]] = {
        "two-stream": (has_context, "a masked text beside the finished one"),
        "shadow": (read.shadow, "shadows of its tokens"),
    }
    for ability, (is_asked, what) in kinds.items():
        if is_asked and ability not in abilities:
            raise InputError(
                f"{info.name!r:.80} cannot read {what} ({ability}) as it is loaded: take another "
                'scorer, such as "dise", or the engine "transformers"',
                "scorer",
            )


def _without_context(read: Read) -> Read:
    """Return the Read without the context, which every attention but block-causal ignores."""
    if read.context_ids is None:
        return read
    guidance = read.guidance and replace(read.guidance, context_ids=None)
    return replace(read, context_ids=None, guidance=guidance)


def border_of(num_tokens: int, info: ModelInfo) -> int:
    """Return where the last block of a text of num_tokens >= 0 tokens ends, at most max_length. For
    a model with block-causal attention.
    """
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
        window = (window[0], border_of(num_tokens, info))
    return replace(hint, window=window, most=border_of(hint.most, info))
