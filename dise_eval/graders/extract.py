"""Finds the final answer in a response: boxes, answer marks, numbers."""

from __future__ import annotations

import re

from dise_core.patterns import compiled

MAX_TEXT = 100_000
"""The characters at a response's end, where answers are, that are searched."""

NUMBER = re.compile(r"-?\d+\.?\d*")
BOX = compiled(r"\\boxed\{([^}\n]*)\}")


def answer_marks(text: str) -> str | None:
    """Return the content of the first <answer>...</answer>; None without one."""
    start = text.find("<answer>")
    end = text.find("</answer>", start)
    return text[start + len("<answer>") : end].strip() if start >= 0 and end >= 0 else None


def last_box(text: str) -> str | None:
    """Return the content of the last \\boxed{...}, else of the last \\fbox{...}, with
    balanced braces; None if there is none or it is not closed.
    """
    start = text.rfind("\\boxed{")
    if start < 0:
        start = text.rfind("\\fbox{")
    return None if start < 0 else braced(text, text.index("{", start))


def all_boxes(text: str) -> list[str]:
    """Return the content of each \\boxed{...}, up to its first closing brace."""
    boxes = BOX.findall(text.encode(errors="replace"))  # which re takes quadratic time for
    return [content.decode() for content in boxes]


def braced(text: str, start: int) -> str | None:
    """Return the text from the brace at `start` to its match; None without one."""
    depth = 0
    for index in range(start, len(text)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : index]
    return None
