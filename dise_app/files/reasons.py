"""Why rows failed: messages with their counts, the commonest first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

MOST_KEPT = 50
"""Reasons that are kept of many rows."""

MOST_TOLD = 3


def commonest(counts: Iterable[tuple[str, int]], most: int = MOST_KEPT) -> dict[str, int]:
    """Return the commonest messages with their counts. Those that differ in numbers alone are one,
    told by the first of them; of as common ones the earlier come first.
    """
    first, total = dict[str, str](), Counter[str]()
    for message, count in counts:
        reason = re.sub(r"\d+", "#", message)
        first.setdefault(reason, message)
        total[reason] += count
    return {first[reason]: count for reason, count in total.most_common(most)}


def reasons(counts: Iterable[tuple[str, int]]) -> list[str]:
    """Return what to tell of messages with their counts, a line each."""
    return [f"{count} failed: {message}" for message, count in commonest(counts, MOST_TOLD).items()]
