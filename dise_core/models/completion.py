"""Reads as the model runs them: in whole blocks, without what it ignores, and with
tokens that are drawn under uniform noise.
"""

from dataclasses import replace

import numpy as np

from dise_core.arrays import Floats, Ids
from dise_core.errors import InputError
from dise_core.models.attention import Canvases
from dise_core.models.info import ModelInfo
from dise_core.models.predictor import Ability
from dise_core.noise import Noise
from dise_core.plans.reading import CacheHint, Read


def completed(read: Read, info: ModelInfo) -> Read:
    """Return the Read as the model runs it; done twice, it changes nothing more.

    With blocks or canvases of its own, a text that ends inside one goes on with `fills`:
    an incomplete block would be seen with fewer neighbours than any in training. Not so
    without an end token, and for a complete Read. In canvases each is read after the
    finished text before it: `context_ids`, or the text itself. Under uniform noise tokens
    are drawn where masks stand, each by its position, and the Read tells its noise level
    if the model is told.
    """
    if info.noise == "uniform":
        read = _drawn(read, info)
    if info.block_length is None:
        return read if read.context_ids is None else _with_contexts(read, None, None)
    if isinstance(info.attention, Canvases):
        read = _in_canvases(read)
    elif read.start:
        read = replace(read, start=0)
    if read.is_complete:
        return read
    num_tokens = len(read.token_ids)
    ends = fills(read.token_ids if read.context_ids is None else read.context_ids, info, read.start)
    if not len(ends):
        return read
    guidance, cache = read.guidance, read.cache
    if guidance is not None:
        guidance = replace(
            guidance,
            token_ids=np.append(guidance.token_ids, ends),
            context_ids=_append(guidance.context_ids, ends),
        )
    if cache is not None:
        cache = _complete_hint(cache, num_tokens, info, read.start)
    return replace(
        read,
        token_ids=np.append(read.token_ids, ends),
        context_ids=_append(read.context_ids, ends),
        guidance=guidance,
        cache=cache,
    )


def fills(token_ids: Ids, info: ModelInfo, start: int = 0) -> Ids:
    """Return what follows a finished text up to its last block's border, int64: end
    tokens, or behind the first end `fill_id`; nothing beyond max_length, without an end
    token, and for a model without blocks of its own. start: see Read.
    """
    end, fill = info.special.eos_id, info.fill_id
    if info.block_length is None or end is None:
        return token_ids[:0]
    more = border_of(len(token_ids), info, start) - len(token_ids)
    # Less than 0 where max_length ends inside the block, which then stays incomplete.
    ends = np.full(max(more, 0), end if fill is None else fill)
    text = token_ids[token_ids != fill]
    if fill is not None and not (len(text) and info.special.is_end(text[-1:])[0]):
        ends[:1] = end
    return ends


def noise_levels(read: Read, info: ModelInfo) -> Floats:
    """Return the noise level at each position of the text, float64 [N]: the Read's own;
    where it tells none, the share of masks in the text, or in the position's own block.
    """
    num_tokens, grid = len(read.token_ids), info.blocks(read.start)
    if read.noise is not None:
        return np.full(num_tokens, read.noise)
    length, origin = (max(num_tokens, 1), 0) if grid is None else (grid.length, grid.origin)
    blocks = (np.arange(num_tokens) - origin % length) // length
    blocks -= blocks[:1].sum()
    counts = np.bincount(blocks, read.token_ids == info.special.mask_id)
    levels: Floats = (counts / np.bincount(blocks))[blocks]
    return levels


def _drawn(read: Read, info: ModelInfo) -> Read:
    """Return a Read whose hidden tokens are drawn. A guided text has the same ones."""
    hidden, positions = info.special.mask_id, np.arange(len(read.token_ids))
    tokens = drawn_tokens(positions, info.vocab_size, read.draws)

    def drawn(ids: Ids) -> Ids:
        return np.where(ids == hidden, tokens, ids)

    guidance = read.guidance
    if guidance is not None:
        context = guidance.context_ids
        context = None if context is None else drawn(context)
        guidance = replace(guidance, token_ids=drawn(guidance.token_ids), context_ids=context)
    level = None
    if info.is_time_conditioned:
        level = float(noise_levels(read, info)[0]) if len(positions) else 0.0
    return replace(read, token_ids=drawn(read.token_ids), guidance=guidance, noise=level)


def drawn_tokens(positions: Ids, vocab_size: int, draws: Noise | None = None) -> Ids:
    """Return the tokens that are drawn where a text is hidden, int64 [M]. draws: see Read."""
    # A token depends on its position alone: a text reads the same tokens whatever its length
    # and its batch, and a guided one differs from its twin in the prompt and nowhere else.
    # Purpose 2, as candidates are drawn by 0 and policies by 1.
    uniforms = (draws or Noise(0)).uniforms(positions, purpose=2)
    return (uniforms * vocab_size).astype(np.int64)


def _in_canvases(read: Read) -> Read:
    """Return a Read that has contexts."""
    if read.context_ids is not None or read.shadow:
        return read
    guiding = None if read.guidance is None else read.guidance.token_ids
    return _with_contexts(read, read.token_ids, guiding)


def _with_contexts(read: Read, context: Ids | None, guiding: Ids | None) -> Read:
    guidance = read.guidance and replace(read.guidance, context_ids=guiding)
    return replace(read, context_ids=context, guidance=guidance)


def _append(context: Ids | None, ends: Ids) -> Ids | None:
    return None if context is None else np.append(context, ends)


def check_abilities(read: Read, info: ModelInfo, abilities: frozenset[Ability]) -> None:
    """Raise InputError for a kind of Read that these abilities do not answer."""
    has_context = read.context_ids is not None and info.block_length is not None
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
    if isinstance(info.attention, Canvases) and (read.positions < read.start).any():
        raise InputError(
            f"{info.name!r:.80} predicts no token of a prompt, which it reads causally: take a "
            'selector of response tokens, such as "response-text"',
            "selector",
        )


def border_of(num_tokens: int, info: ModelInfo, start: int = 0) -> int:
    """Return where a text's last block ends, at most max_length, and at least at `start`
    in canvases. Only with blocks of its own.
    """
    grid = info.blocks(start)
    assert grid is not None
    return min(num_tokens + (grid.origin - num_tokens) % grid.length, info.max_length)


def _complete_hint(hint: CacheHint, num_tokens: int, info: ModelInfo, start: int) -> CacheHint:
    """Return the completed text's hint: a window to the end still reaches it."""
    window = hint.window
    if window is not None and window[1] == num_tokens:
        window = (window[0], border_of(num_tokens, info, start))
    return replace(hint, window=window, most=hint.most and border_of(hint.most, info, start))
