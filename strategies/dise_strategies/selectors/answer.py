"""The selector of the answer in a response."""

import re
from itertools import accumulate
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from dise_core import Mask, Selector, TokenSequence
from dise_core.constraints.spans import values_of
from dise_core.patterns import compiled

MAX_GROUPS = 9
"""Of a pattern: what each matched is kept for every step that it may be at."""

MARKS = ("\\boxed{", "}"), ("<answer>", "</answer>"), ("####", "\n")
"""What stands before and behind answers, the surest first."""

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?|-?\.\d+")

Span = tuple[int, int]
"""Bytes or characters of a text, half-open."""


class AnswerRegion(Selector):
    r"""Selects the answer in the response: where a pattern matches last. Without one that
    is the values of a constraint's JSON, else the last \boxed{}, the last <answer>, what
    follows the last #### in its line, or the last number. Where there is none of these,
    it is the whole response but its end tokens.
    """

    pattern: str | None = Field(default=None, min_length=1, max_length=256)
    r"""A regular expression of RE2: \w, \d and \s are of ASCII alone, and $ is the very end. Of
    its groups, at most 9, the first one counts.
    """

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            if compiled(pattern).groups > MAX_GROUPS:
                raise ValueError(f"it has more than {MAX_GROUPS} groups: write (?:...) for others")
            _repeated(pattern)
        return pattern

    def select(self, sequence: TokenSequence) -> Mask:
        pieces = sequence.pieces[sequence.prompt_length : sequence.response_end]
        is_json = sequence.rule is not None and sequence.rule.is_json
        ends = np.cumsum([0, *map(len, pieces)])
        counts = np.zeros(ends[-1] + 1, np.int64)
        for start, stop in self._spans(b"".join(pieces), is_json):
            counts[start + 1 : stop + 1] = 1
        num_named = np.diff(counts.cumsum()[ends])
        positions = sequence.response_positions[num_named > 0]
        return sequence.mask_of(positions if len(positions) else sequence.text_positions)

    def _spans(self, text: bytes, is_json: bool) -> list[Span]:
        """Return the bytes of the answer."""
        if self.pattern is not None:
            repeated = _repeated(self.pattern)
            return [repeated.match(text).span(min(repeated.groups, 2))]
        letters = text.decode(errors="surrogateescape")
        spans = (_values(letters) if is_json else []) or _usual(letters)
        return [(_num_bytes(letters[:start]), _num_bytes(letters[:stop])) for start, stop in spans]


def _repeated(pattern: str) -> Any:
    """Return what matches any text in one pass, and keeps in its groups where the pattern matched
    last: to search on from match to match may be quadratic.
    """
    return compiled(rf"(?:({pattern})|\C)*\z")


def _num_bytes(text: str) -> int:
    return len(text.encode(errors="surrogateescape"))


def _values(text: str) -> list[Span]:
    try:
        values = values_of(text).values()
    except (ValueError, IndexError, RecursionError):  # not whole, so no JSON
        return []
    return [leaf.span for leaf in values if not isinstance(leaf.value, dict | list)]


def _usual(text: str) -> list[Span]:
    for mark, end in MARKS:
        start = text.rfind(mark) + len(mark)
        stop = _closing(text, start) if end == "}" else text.find(end, start)
        answer = text[start : len(text) if stop < 0 else stop].strip()
        if mark in text and answer:
            start = text.index(answer, start)
            return [(start, start + len(answer))]
    return [match.span() for match in NUMBER.finditer(text)][-1:]


def _closing(text: str, start: int) -> int:
    """Return where the brace that was opened before `start` is closed; -1 if nowhere."""
    depths = accumulate((letter == "{") - (letter == "}") for letter in text[start:])
    return next((at for at, depth in enumerate(depths, start) if depth < 0), -1)
