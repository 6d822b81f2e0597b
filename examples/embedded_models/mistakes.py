"""Answers with mistakes, of which a model learns to say what should stand at each place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random


def with_mistakes(
    random: Random,
    response: list[int],
    kinds: Sequence[str],
    misread: Callable[[], list[int]],
    another: Callable[[int], int],
) -> list[int]:
    """Return a response of the same length, of a kind drawn from `kinds`: "right", as it is;
    "misread", what `misread` returns; "random", some tokens replaced by what `another` returns.

    Where no answer to a misread problem is as long, tokens are replaced.
    """
    kind = random.choice(kinds)
    if kind == "right":
        return response
    if kind == "misread":
        for _ in range(20):
            other = misread()
            if len(other) == len(response) and other != response:
                return other
    rate = random.uniform(0, 0.3)
    return [another(token) if random.random() < rate else token for token in response]
