"""What the scorers share that reveal the selected tokens of a text from step to step."""

from dataclasses import replace

import numpy as np

from dise_core import Floats, Ids, Read, Reading, TokenLogProbs, TokenSequence
from dise_core.blocks import BlockGrid


def by_block(grid: BlockGrid, positions: Ids) -> list[Ids]:
    """Return ascending positions, int64 [M], M >= 1, block by block."""
    blocks = (positions - grid.origin) // grid.length
    return np.split(positions, np.flatnonzero(np.diff(blocks)) + 1)


def factors(text: TokenSequence, positions: Ids) -> list[Ids]:
    """Return ascending positions, int64 [M], M >= 1, by the factors of their likelihood: all
    together, or under block-causal attention each block's, since those before it are given.
    """
    return [positions] if text.origin == "response" else by_block(text.blocks, positions)


def questions(text: TokenSequence, hidden: Ids, positions: Ids) -> tuple[Read, Read]:
    """Return the Reads of the log-probability of the text's tokens, and of that of the mask, at
    positions, int64 [M], with masks at `hidden`. They share a row.
    """
    targets = TokenLogProbs(text.ids[positions])
    tokens = Read(text.with_masks(hidden), positions, targets, context_ids=text.ids)
    masks = TokenLogProbs(np.full(len(positions), text.special.masking_id))
    return tokens, replace(tokens, readout=masks)


def without_mask(tokens: Reading, masks: Reading) -> Floats:
    """Return the tokens' log-probabilities, float64 [M], renormalised over all but the mask, which
    is never written. They stay bit for bit where the mask has probability 0.
    """
    share = np.minimum(np.exp(masks.logprobs.astype(np.float64)), 1 - 1e-7)
    return tokens.logprobs.astype(np.float64) - np.log1p(-share)
