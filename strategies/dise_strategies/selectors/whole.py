"""Selectors of whole parts of the text."""

from __future__ import annotations

from dise_core import Selector, TokenSequence
from dise_core.arrays import Mask


class Full(Selector):
    """Selects the whole text [P; R], end tokens included."""

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(slice(None))


class PromptOnly(Selector):
    """Selects the prompt."""

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(slice(sequence.prompt_length))


class Response(Selector):
    """Selects the response, end tokens included."""

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(sequence.response_positions)


class ResponseText(Selector):
    """Selects the response without its end tokens, wherever they occur."""

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(sequence.text_positions)
