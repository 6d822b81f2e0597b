"""Selectors of K tokens of the prompt or the response, or of all if it has fewer."""

from typing import ClassVar

from pydantic import Field

from dise_core import Mask, Selector, TokenSequence


class CountedSelector(Selector):
    """Selects K tokens."""

    k: int = Field(gt=0, lt=10**9)
    """Tokens to select."""


class FirstK(CountedSelector):
    """Selects the first K tokens of the response that are not end tokens."""

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(sequence.text_positions[: self.k])


class MidK(CountedSelector):
    """Selects the middle K response tokens that are not end tokens; of two middles, the left."""

    def select(self, sequence: TokenSequence) -> Mask:
        text = sequence.text_positions
        start = max(0, (len(text) - self.k) // 2)
        return sequence.mask_of(text[start : start + self.k])


class LastK(CountedSelector):
    """Selects the last K tokens of the response that are not end tokens."""

    suits: ClassVar[str] = "`written` on masks alone: 0.81 over last-10, 0.66 over all"

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(sequence.text_positions[-self.k :])


class PromptLastK(CountedSelector):
    """Selects the last K tokens of the prompt, whatever they are."""

    def select(self, sequence: TokenSequence) -> Mask:
        start = max(0, sequence.prompt_length - self.k)
        return sequence.mask_of(slice(start, sequence.prompt_length))
