"""Selectors of one block of the response, end tokens included. Blocks count from the start of the
response.
"""

from __future__ import annotations

from dise_core import Selector, TokenSequence
from dise_core.arrays import Mask


class FirstBlock(Selector):
    """Selects the first block."""

    def select(self, sequence: TokenSequence) -> Mask:
        """Return M, bool [N]."""
        return sequence.mask_of(sequence.response_positions[: sequence.block_length])


class LastBlock(Selector):
    """Selects the last block, which may be shorter than the others."""

    def select(self, sequence: TokenSequence) -> Mask:
        """Return M, bool [N]."""
        num_before = (len(sequence.response) - 1) // sequence.block_length * sequence.block_length
        return sequence.mask_of(sequence.response_positions[max(num_before, 0) :])
