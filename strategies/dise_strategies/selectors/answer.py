"""The selector of the answer in a response."""

import math
import re
from itertools import accumulate

import numpy as np
import regex
from pydantic import Field, field_validator

from dise_core import InputError, Mask, Selector, TokenSequence
from dise_core.constraints.spans import values_of

MAX_SECONDS = 0.02
"""Of processor time for a pattern and a text: the engine tries alternatives one after the
other, and could go on for ever. An honest pattern takes a thousandth of it.
"""

MAX_REPEATS = 1000
"""The product of a pattern's counts: the engine writes them out."""

MARKS = ("\\boxed{", "}"), ("<answer>", "</answer>"), ("####", "\n")
"""What stands before and behind answers, the surest first."""

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?|-?\.\d+")

Span = tuple[int, int]
"""Characters of a text, half-open."""


class AnswerRegion(Selector):
    r"""Selects the answer in the response: where a pattern matches last. Without one that
    is the values of a constraint's JSON, else the last \boxed{}, the last <answer>, what
    follows the last #### in its line, or the last number. Where there is none of these,
    it is the whole response but its end tokens.
    """

    pattern: str | None = Field(default=None, min_length=1, max_length=256)
    """A regular expression as Python's; of its groups the first one counts."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        counts = re.findall(r"\d+", pattern.replace("0-9", "")) if "{" in pattern else ()
        if math.prod(max(int(count), 1) for count in counts) > MAX_REPEATS:
            raise ValueError(f"its counts, such as {{1,20}}, multiply to more than {MAX_REPEATS:,}")
        try:
            regex.compile(pattern)
        except (regex.error, RecursionError) as error:
            raise ValueError(f"it is no regular expression: {error}") from error
        return pattern

    def select(self, sequence: TokenSequence) -> Mask:
        pieces = sequence.pieces[sequence.prompt_length : sequence.response_end]
        text = b"".join(pieces).decode(errors="surrogateescape")
        is_json = sequence.rule is not None and sequence.rule.is_json
        ends = np.cumsum([0, *map(len, pieces)])
        counts = np.zeros(ends[-1] + 1, np.int64)
        for span in self._spans(text, is_json):
            start, stop = (len(text[:at].encode(errors="surrogateescape")) for at in span)
            counts[start + 1 : stop + 1] = 1
        num_named = np.diff(counts.cumsum()[ends])
        positions = sequence.response_positions[num_named > 0]
        return sequence.mask_of(positions if len(positions) else sequence.text_positions)

    def _spans(self, text: str, is_json: bool) -> list[Span]:
        if self.pattern is not None:
            return _matched(self.pattern, text)
        return (_values(text) if is_json else []) or _usual(text)


def _matched(pattern: str, text: str) -> list[Span]:
    """Return the last place that is not empty. Raises InputError if that takes long."""
    last: list[Span] = []
    try:
        for match in regex.finditer(pattern, text, timeout=MAX_SECONDS):
            start, stop = match.span(min(match.re.groups, 1))
            last = [(start, stop)] if start < stop else last
    except (TimeoutError, MemoryError) as error:
        raise InputError(
            f"the pattern {pattern!r:.80} takes too long on this answer: repeat nothing "
            "that holds a repetition, and leave out .* where you can",
            "selector_settings",
        ) from error
    return last


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
