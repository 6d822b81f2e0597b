"""Which contenders the others are compared with: no result decides it."""

from __future__ import annotations

import re
from collections.abc import Mapping

BASELINES = {
    *("mc", "ar-perplexity"),
    *("greedy", "mean", "majority", "as", "best"),
    *("fixed", "until-end", "daedal"),
}
"""The first words of the names of scorers, of ways to choose an answer or spend forward
passes, and of length controllers."""


def is_baseline(name: str) -> bool:
    """Return whether a contender is one that ours are compared with."""
    return re.split(r"[:, ]", name, maxsplit=1)[0] in BASELINES


def references_of(passes: Mapping[str, float]) -> list[str]:
    """Return the baselines of most and fewest passes, or the first contender."""
    baselines = [name for name in passes if is_baseline(name)] or list(passes)[:1]
    picks = (pick(baselines, key=lambda name: round(passes[name])) for pick in (max, min))
    return list(dict.fromkeys(picks))
