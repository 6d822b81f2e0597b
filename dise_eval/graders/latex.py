"""Normalizes LaTeX answers in the Hendrycks MATH grader's steps and order."""

from __future__ import annotations

import re

_REPLACED = (
    *(("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac")),
    *((mark, "") for mark in ("\\left", "\\right", "^{\\circ}", "^\\circ", "\\$")),
)


def normalize(text: str) -> str:
    """Return normalized text. Raises ValueError for two units or an empty root."""
    for mark, plain in _REPLACED:
        text = text.replace(mark, plain)
    text = _without_units(text).replace("\\%", "").replace("\\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    text = f"0{text}" if text[0] == "." else text
    variable, *values = text.split("=")
    if len(values) == 1 and len(variable) <= 2:
        text = values[0]
    text = _fixed_fractions(_fixed_roots(text).replace(" ", ""))
    return _fixed_slash("\\frac{1}{2}" if text == "0.5" else text)


def _without_units(text: str) -> str:
    """Return the text without its unit, \\text{ ...}. Raises ValueError for two."""
    parts = text.split("\\text{ ")
    if len(parts) > 2:
        raise ValueError("more than one unit")
    return parts[0]


def _fixed_roots(text: str) -> str:
    """Return the text with \\sqrt3 braced. Raises ValueError for an empty root."""
    first, *parts = text.split("\\sqrt")
    if not parts:
        return text
    if any(not part for part in parts):
        raise ValueError("a root of nothing")
    return first + "".join(
        "\\sqrt" + (part if part[0] == "{" else f"{{{part[0]}}}{part[1:]}") for part in parts
    )


def _fixed_fractions(text: str) -> str:
    """Return the text with braces added to \\frac12 and \\frac1{72}."""
    first, *parts = text.split("\\frac")
    fixed = first
    for part in parts:
        fixed += "\\frac"
        if part and part[0] == "{":
            fixed += part
            continue
        if len(part) < 2:
            return text
        over, under, tail = part[0], part[1], part[2:]
        fixed += f"{{{over}}}{under}{tail}" if under == "{" else f"{{{over}}}{{{under}}}{tail}"
    return fixed


def _fixed_slash(text: str) -> str:
    """Return \\frac{3}{4} for 3/4, and any other text unchanged."""
    if not re.fullmatch(r"-?\d+/-?\d+", text):
        return text
    over, under = map(int, text.split("/"))
    return f"\\frac{{{over}}}{{{under}}}" if text == f"{over}/{under}" else text
