"""What an expression allows, by the list of all its texts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence


class NaiveTexts:
    """The texts of an expression of up to `longest` characters, and one more than any text has.
    pieces: what each token spells, but for the end and the mask, the last two ids.
    """

    def __init__(self, expression: str, pieces: Sequence[str], letters: str, longest: int) -> None:
        counts = range(longest + 1)
        every = ("".join(text) for n in counts for text in itertools.product(letters, repeat=n))
        self.texts = {text for text in every if re.fullmatch(expression, text)}
        self.beginnings = {text[:n] for text in self.texts for n in range(len(text) + 1)}
        self.pieces, self.end = list(pieces), len(pieces)

    def spelt(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces[token] for token in ids)

    def length(self, ids: Sequence[int]) -> int:
        """How many tokens stand before the first end token."""
        return ids.index(self.end) if self.end in ids else len(ids)

    def is_valid(self, ids: Sequence[int]) -> bool:
        """Whether a response is a valid text, and nothing but ends behind one."""
        end = self.length(ids)
        return {*ids[end:]} <= {self.end} and self.spelt(ids[:end]) in self.texts

    def goes_on(self, text: str) -> set[str]:
        """What may follow the beginning of a text: characters, and "" for its end."""
        return {other[len(text) :][:1] for other in self.texts if other.startswith(text)}

    def is_certain(self, ids: Sequence[int], index: int) -> bool:
        """Whether the tokens before it left no other text for this one."""
        end = self.length(ids)
        if index >= end:
            return index > end or self.goes_on(self.spelt(ids[:end])) == {""}
        before, piece = self.spelt(ids[:index]), self.pieces[ids[index]]
        steps = range(len(piece))
        return all(self.goes_on(before + piece[:at]) == {piece[at]} for at in steps)

    def allowed(self, ids: Sequence[int], index: int, is_cut: bool = False) -> set[int]:
        """Return the tokens that may stand in the place of one, the others as they are."""
        if self.is_certain(ids, index):
            return {ids[index]}
        end = self.length(ids)
        return {
            token
            for token in range(self.end + 1)
            if self._fits([*ids[:index], token, *ids[index + 1 : end]], is_cut or end < len(ids))
        }

    def _fits(self, text: list[int], may_go_on: bool) -> bool:
        if self.end in text[:-1]:
            return False
        is_open = may_go_on and text[-1] != self.end
        return self.spelt(text) in self.beginnings if is_open else self.is_valid(text)
