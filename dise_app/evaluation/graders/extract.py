"""Finding the final answer in a response: boxes, answer marks, numbers."""

from __future__ import annotations

import re

MAX_TEXT = 100_000
"""Characters of a response that are looked at; the last ones, as answers stand at the end."""

NUMBER = re.compile(r"-?\d+\.?\d*")


def answer_marks(text: str) -> str | None:
    """Return what stands in the first <answer>...</answer>, None without one."""
    start = text.find("<answer>")
    end = text.find("</answer>", start)
    return text[start + len("<answer>") : end].strip() if start >= 0 and end >= 0 else None


def last_box(text: str) -> str | None:
    """Return what stands in the last \\boxed{...} or \\fbox{...}, braces inside it balanced; None
    without a closed one.
    """
    start = max(text.rfind("\\boxed{"), -1)
    if start < 0:
        start = text.rfind("\\fbox{")
    return None if start < 0 else balanced(text, text.index("{", start))


def all_boxes(text: str) -> list[str]:
    """Return what stands in each \\boxed{...} up to its first closing brace, in order: nested
    braces cut it short.
    """
    return re.findall(r"\\boxed\{([^}\n]*)\}", text)


def balanced(text: str, start: int) -> str | None:
    """Return what stands between the brace at `start` and the one that closes it; None if none
    does.
    """
    depth = 0
    for index in range(start, len(text)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : index]
    return None
