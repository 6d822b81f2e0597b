"""Texts with hidden tokens, and the factors of their likelihoods."""

import numpy as np

from dise_core import Ids, Read, TokenLogProbs, TokenSequence


def factors(text: TokenSequence, positions: Ids) -> list[Ids]:
    """Return ascending positions, int64 [M], M >= 1, by the factors of their likelihood: all
    together, or under block-causal attention each block's, since those before it are given.
    """
    return [positions] if text.origin == "response" else by_block(text, positions)


def by_block(text: TokenSequence, positions: Ids) -> list[Ids]:
    """Return ascending positions, int64 [M], M >= 1, block by block."""
    blocks = (positions - text.blocks.origin) // text.blocks.length
    return np.split(positions, np.flatnonzero(np.diff(blocks)) + 1)


def masked_read(text: TokenSequence, hidden: Ids, positions: Ids) -> Read:
    """Return the Read of the text's own tokens at positions, int64 [M], with masks at `hidden`,
    after the finished blocks under block-causal attention.
    """
    targets, noise = TokenLogProbs(text.ids[positions]), text.noise_in(hidden)
    masked, start = text.with_masks(hidden), text.prompt_length
    return Read(masked, positions, targets, context_ids=text.ids, noise=noise, start=start)
