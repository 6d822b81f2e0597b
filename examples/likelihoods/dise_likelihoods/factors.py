"""The factors of a text's likelihood, which both scorers reveal."""

import numpy as np

from dise_core import Ids, TokenSequence


def factors(text: TokenSequence, positions: Ids) -> list[Ids]:
    """Return ascending positions, int64 [M], M >= 1, by the factors of their likelihood: all
    together, or under block-causal attention each block's, since those before it are given.
    """
    if text.origin == "response":
        return [positions]
    blocks = (positions - text.blocks.origin) // text.blocks.length
    return np.split(positions, np.flatnonzero(np.diff(blocks)) + 1)
