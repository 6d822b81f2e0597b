"""Normalizes LaTeX answers with the steps of the Hendrycks MATH grader, in the same order."""

from __future__ import annotations

import re

_REPLACED = (
    *(("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac")),
    *((mark, "") for mark in ("\\left", "\\right", "^{\\circ}", "^\\circ", "\\$")),
)


def normalized(text: str) -> str:
    """Return the normalized text. Raises ValueError for two units, or a root of nothing."""
    for mark, plain in _REPLACED:
        text = text.replace(mark, plain)
    text = _without_units(text).replace("\\%", "").replace("\\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    text = f"0{text}" if text[0] == "." else text
    left, *right = text.split("=")
    if len(right) == 1 and len(left) <= 2:
        text = right[0]
    text = _fixed_fractions(_fixed_roots(text).replace(" ", ""))
    return _fixed_slash("\\frac{1}{2}" if text == "0.5" else text)


def _without_units(text: str) -> str:
    """Return the text without a unit, \\text{ ...}, on its right. Raises ValueError for two."""
    parts = text.split("\\text{ ")
    if len(parts) > 2:
        raise ValueError("more than one unit")
    return parts[0]


def _fixed_roots(text: str) -> str:
    """Return the text with braces added to \\sqrt3. Raises ValueError for a root of nothing."""
    first, *rest = text.split("\\sqrt")
    if not rest:
        return text
    if any(not part for part in rest):
        raise ValueError("a root of nothing")
    return first + "".join(
        "\\sqrt" + (part if part[0] == "{" else f"{{{part[0]}}}{part[1:]}") for part in rest
    )


def _fixed_fractions(text: str) -> str:
    """Return the text with braces added to \\frac12 and \\frac1{72}."""
    first, *rest = text.split("\\frac")
    fixed = first
    for part in rest:
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
