"""The words of a text that its tokens spell in pieces."""

import unicodedata
from itertools import pairwise

import numpy as np

from dise_core import Ids, TokenSequence


def words(sequence: TokenSequence) -> Ids:
    """Return the number of each token's word, from 0 on, int64 [N].

    A word is a run of letters, digits and their marks; between two others, a token is on
    its own, unless it begins inside a character. Raises InputError for a text without
    `spell`.
    """
    joins = [_joins(before, piece) for before, piece in pairwise(sequence.pieces)]
    return np.append(0, np.cumsum(~np.array(joins, np.bool_)))[: len(sequence)]


def _joins(before: bytes, piece: bytes) -> bool:
    """Return whether a token goes on with the word of the one before it."""
    if not (before and piece):
        return False
    if piece[0] & 0xC0 == 0x80:  # a later byte of a character
        return True
    return _is_of_word(before.decode(errors="replace")[-1]) and _is_of_word(
        piece.decode(errors="replace")[0]
    )


def _is_of_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"
