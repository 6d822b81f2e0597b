"""How several requests end: in order, counted, and with a line that tells how many failed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from dise_core.engine import Outcome
from dise_core.outputs import RequestOutput

T = TypeVar("T")


def in_order(
    items: Sequence[T], outcomes: Iterable[Outcome[RequestOutput]]
) -> Iterator[tuple[T, Outcome[RequestOutput]]]:
    """Yield the items with their outcomes in the order of the items, each as soon as those before
    it have ended.
    """
    early: dict[int, Outcome[RequestOutput]] = {}
    index = 0
    for outcome in outcomes:
        early[outcome.index] = outcome
        while index in early:
            yield items[index], early.pop(index)
            index += 1


def counted(outcomes: Iterable[T], advance: Callable[[int], None]) -> Iterator[T]:
    """Yield the outcomes, and advance the bar by each."""
    for outcome in outcomes:
        advance(1)
        yield outcome


def close(num_answered: int, num_failed: int, is_told: bool = False) -> None:
    """Tell on standard error how many were answered and how many failed: if any failed, or if
    is_told. Raises typer.Exit(1) if any failed.
    """
    import typer

    if num_failed or is_told:
        failed = f", {num_failed} failed" if num_failed else ""
        print(f"dise: {num_answered} answered{failed}", file=sys.stderr)
    if num_failed:
        raise typer.Exit(1)
