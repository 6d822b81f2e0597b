"""Reads as the model runs them: in whole blocks, without what it ignores, and with
tokens that are drawn under uniform noise.
"""

from dataclasses import replace

import numpy as np

from dise_core.arrays import Floats, Ids
from dise_core.errors import InputError
from dise_core.models.attention import BlockCausal
from dise_core.models.info import ModelInfo
from dise_core.models.predictor import Ability
from dise_core.noise import Noise
from dise_core.plans.reading import CacheHint, Read


def completed(read: Read, info: ModelInfo) -> Read:
    """Return the Read as the model runs it; done twice, it changes nothing more.

    Under block-causal attention a text that ends inside a block goes on with end tokens
    up to the block's border, though never beyond max_length: an incomplete block would be
    seen with fewer neighbours than any in training. Not so without an end token, and for
    a complete Read. Under uniform noise tokens are drawn where masks stand, each by its
    position, and the Read tells its noise level.
    """
    if info.noise == "uniform":
        read = _drawn(read, info)
    if not isinstance(info.attention, BlockCausal):
        if read.context_ids is None:
            return read
        guidance = read.guidance and replace(read.guidance, context_ids=None)
        return replace(read, context_ids=None, guidance=guidance)
    if info.special.eos_id is None or read.is_complete:
        return read
    num_tokens = len(read.token_ids)
    more = border_of(num_tokens, info) - num_tokens
    # 0 also where max_length ends inside the block, which then stays incomplete.
    if more <= 0:
        return read
    ends = np.full(more, info.special.eos_id)
    guidance, cache = read.guidance, read.cache
    if guidance is not None:
        guidance = replace(
            guidance,
            token_ids=np.append(guidance.token_ids, ends),
            context_ids=_append(guidance.context_ids, ends),
        )
    if cache is not None:
        cache = _complete_hint(cache, num_tokens, info)
    return replace(
        read,
        token_ids=np.append(read.token_ids, ends),
        context_ids=_append(read.context_ids, ends),
        guidance=guidance,
        cache=cache,
    )


def noise_levels(read: Read, info: ModelInfo) -> Floats:
    """Return the noise level at each position of the text, float64 [N]: the Read's own;
    where it tells none, the share of masks in the text, or under block-causal attention
    in the position's block.
    """
    num_tokens = len(read.token_ids)
    if read.noise is not None:
        return np.full(num_tokens, read.noise)
    blocks = np.arange(num_tokens) // (info.block_length or max(num_tokens, 1))
    counts = np.bincount(blocks, read.token_ids == info.special.mask_id)
    levels: Floats = (counts / np.bincount(blocks))[blocks]
    return levels


def _drawn(read: Read, info: ModelInfo) -> Read:
    """Return a Read whose hidden tokens are drawn. A guided text has the same ones."""
    hidden, positions = info.special.mask_id, np.arange(len(read.token_ids))
    # A token depends on its position alone: a text reads the same tokens whatever its length
    # and its batch, and a guided one differs from its twin in the prompt and nowhere else.
    # Purpose 2, as candidates are drawn by 0 and policies by 1.
    uniforms = (read.draws or Noise(0)).uniforms(positions, purpose=2)
    tokens = (uniforms * info.vocab_size).astype(np.int64)
    guidance = read.guidance
    if guidance is not None:
        ids = np.where(guidance.token_ids == hidden, tokens, guidance.token_ids)
        guidance = replace(guidance, token_ids=ids)
    level = float(noise_levels(read, info)[0]) if len(positions) else 0.0
    ids = np.where(read.token_ids == hidden, tokens, read.token_ids)
    return replace(read, token_ids=ids, guidance=guidance, noise=level)


def _append(context: Ids | None, ends: Ids) -> Ids | None:
    return None if context is None else np.append(context, ends)


def check_abilities(read: Read, info: ModelInfo, abilities: frozenset[Ability]) -> None:
    """Raise InputError for a kind of Read that these abilities do not answer."""
    has_context = read.context_ids is not None and isinstance(info.attention, BlockCausal)
    if not (has_context or read.shadow):
        return  # as nearly all Reads, so that each costs little
    another = 'take another scorer, such as "dise", or the engine "transformers"'
    shadows = f"they need a mask token and attention that heeds any mask; {another}"
    needs: tuple[tuple[Ability, bool, str, str], ...] = (
        ("two-stream", has_context, "a masked text beside the finished one", another),
        ("shadow", read.shadow, "shadows of its tokens", shadows),
    )
    for ability, is_needed, content, advice in needs:
        if is_needed and ability not in abilities:
            raise InputError(
                f"{info.name!r:.80} cannot read {content} ({ability}) as it is loaded: {advice}",
                "scorer",
            )


def border_of(num_tokens: int, info: ModelInfo) -> int:
    """Return where a text's last block ends, at most max_length. Block-causal only."""
    assert isinstance(info.attention, BlockCausal)
    length = info.attention.length
    return min(-(-num_tokens // length) * length, info.max_length)


def _complete_hint(hint: CacheHint, num_tokens: int, info: ModelInfo) -> CacheHint:
    """Return the completed text's hint: a window to the end still reaches it."""
    window = hint.window
    if window is not None and window[1] == num_tokens:
        window = (window[0], border_of(num_tokens, info))
    return replace(hint, window=window, most=border_of(hint.most, info))
