"""How several requests end: in order, counted, and with a line that tells how many failed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import typer

from dise_core.engine import Outcome
from dise_core.front.outputs import RequestOutput
from dise_core.plans.plan import Plan

if TYPE_CHECKING:
    from dise_core.front.llm import LLM

T = TypeVar("T")


def in_order(
    llm: LLM,
    items: Sequence[T],
    plan_of: Callable[[T], Plan[RequestOutput]],
    advance: Callable[[int], None],
) -> Iterator[tuple[T, Outcome[RequestOutput]]]:
    """Yield the items with the outcomes of their plans, in order, as soon as they can be."""
    early: dict[int, Outcome[RequestOutput]] = {}
    index = 0
    for outcome in llm.run(plan_of(item) for item in items):
        advance(1)
        early[outcome.index] = outcome
        while index in early:
            yield items[index], early.pop(index)
            index += 1


def close(num_answered: int, num_failed: int, is_told: bool = False) -> None:
    """Tell how many were answered, if any failed or is_told. Raises typer.Exit(1) if any did."""
    if num_failed or is_told:
        failed = f", {num_failed} failed" if num_failed else ""
        print(f"dise: {num_answered} answered{failed}", file=sys.stderr)
    if num_failed:
        raise typer.Exit(1)
