"""Why rows failed: messages with their counts, the commonest first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

MAX_KEPT = 50
"""Reasons that are kept for many rows."""

MAX_PRINTED = 3


def commonest(counts: Iterable[tuple[str, int]], limit: int = MAX_KEPT) -> dict[str, int]:
    """Return the commonest messages with their counts, the earlier first among equals.
    Messages that differ only in numbers count as the first of them.
    """
    first, total = dict[str, str](), Counter[str]()
    for message, count in counts:
        reason = re.sub(r"\d+", "#", message)
        first.setdefault(reason, message)
        total[reason] += count
    return {first[reason]: count for reason, count in total.most_common(limit)}


def reasons(counts: Iterable[tuple[str, int]]) -> list[str]:
    """Return a line for each of the commonest messages."""
    common = commonest(counts, MAX_PRINTED)
    return [f"{count} failed: {message}" for message, count in common.items()]
