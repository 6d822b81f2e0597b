"""Regular expressions of texts and JSON values, in the syntax of both Rust and Python.

An expression may stand beside another; it is put into a group before it is repeated.
"""

import json
import re
from collections.abc import Iterable
from typing import TypeVar

from dise_core import InputError

S = TypeVar("S", bound=str | None)

MAX_EXPRESSION = 200_000
"""Characters of a regular expression."""

Spacing = tuple[str, str]
"""What stands between items, and between a key and its value: json.dumps's separators."""

SPACINGS = {"json": (", ", ": "), "none": (",", ":")}

CHARACTER = r'(?:[^"\\\x00-\x1f\x7f-\x9f]|\\["\\/bfnrt])'
"""One character of a string. \\u is left out: half a surrogate pair is no character."""

STRING = f'"{CHARACTER}*"'
INTEGER = "-?(?:0|[1-9][0-9]*)"
NUMBER = rf"{INTEGER}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{{1,2}})?"
BOOLEAN = "(?:true|false)"


def ensure_short(expression: str) -> str:
    """Return the expression. Raises InputError if it is too long."""
    return collect([expression])[0]


def collect(parts: Iterable[S]) -> list[S]:
    """Return the parts of one expression. Raises InputError as soon as they are too long,
    so that no more of them are written.
    """
    collected: list[S] = []
    length = 0
    for part in parts:
        collected.append(part)
        length += 0 if part is None else len(part)
        if length > MAX_EXPRESSION:
            raise InputError(
                "the constraint needs a regular expression of more than "
                f"{MAX_EXPRESSION} characters; allow less",
                "constraint",
            )
    return collected


def json_text(value: object, spacing: Spacing = SPACINGS["json"]) -> str:
    """Return the expression of a value's JSON."""
    return re.escape(json.dumps(value, ensure_ascii=False, separators=spacing))


def either(expressions: Iterable[str]) -> str:
    """Return the expression of what any of the expressions allows."""
    first, *further = expressions
    return f"(?:{'|'.join((first, *further))})" if further else first


def any_value(spacing: Spacing, levels: int = 2) -> str:
    """Return the expression of any value, at most so many lists and objects deep."""
    values = [STRING, NUMBER, BOOLEAN, "null"]
    if levels:
        item = any_value(spacing, levels - 1)
        values += [rf"\[{listed(item, spacing)}\]", mapping(item, spacing)]
    return either(values)


def mapping(value: str, spacing: Spacing) -> str:
    """Return the expression of the objects with any keys and these values."""
    return rf"\{{{listed(STRING + re.escape(spacing[1]) + value, spacing)}\}}"


def listed(item: str, spacing: Spacing) -> str:
    """Return the expression of any number of items."""
    return f"(?:{item}(?:{re.escape(spacing[0])}{item})*)?"
