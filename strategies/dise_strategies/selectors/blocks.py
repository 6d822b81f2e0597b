"""Selectors of the response positions in whole blocks, end tokens included."""

from pydantic import Field

from dise_core import Mask, Selector, TokenSequence


class FirstBlocksK(Selector):
    """Selects the response's first K blocks, end tokens included; if it has fewer, all of it.
    The paper's first-block is first-blocks-1.
    """

    k: int = Field(gt=0, lt=10**9)
    """Blocks to select."""

    def select(self, sequence: TokenSequence) -> Mask:
        return _spans(sequence, slice(self.k))


class FinalBlock(Selector):
    """Selects the response's last block, which may be shorter than the others."""

    def select(self, sequence: TokenSequence) -> Mask:
        return _spans(sequence, slice(-1, None))


def _spans(sequence: TokenSequence, part: slice) -> Mask:
    spans = list(sequence.blocks.spans(sequence.prompt_length, sequence.response_end))[part]
    return sequence.mask_of(slice(spans[0][0], spans[-1][1]) if spans else [])
