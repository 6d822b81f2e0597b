"""Progress on the terminal; requests answered in order, and what is told at their end."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dise_core import LLM, Outcome, Plan

T = TypeVar("T")
R = TypeVar("R")

INTERVAL = 30.0
"""The least seconds between two lines of progress."""


@contextmanager
def progress_bar(
    total: int, console: Console | None = None, is_wanted: bool = True
) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar, which shows the count, the time elapsed and the time
    left, if it is wanted and on a terminal: that of the console, else of standard error. Where that
    is none, a line on standard error tells the count as one ends, at most every INTERVAL seconds.
    """
    console = console or Console(stderr=True)
    if is_wanted and total > 1 and not console.is_terminal:
        yield _telling(total)
        return
    bar = (BarColumn(), MofNCompleteColumn()) if total > 1 else ()
    left = (TextColumn("left"), TimeRemainingColumn()) if total > 1 else ()
    with Progress(
        *(SpinnerColumn(), *bar, TimeElapsedColumn(), *left),
        console=console,
        disable=not (is_wanted and console.is_terminal),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)


def _telling(total: int) -> Callable[[int], None]:
    started = last = time.monotonic()
    num_done = 0

    def count(number: int) -> None:
        nonlocal last, num_done
        now = time.monotonic()
        num_done += number
        if now - last >= INTERVAL:
            last = now
            print(f"dise: {num_done}/{total} done after {now - started:.0f} s", file=sys.stderr)

    return count


def in_order(
    llm: LLM, items: Sequence[T], plan_of: Callable[[T], Plan[R]], advance: Callable[[int], None]
) -> Iterator[tuple[T, Outcome[R]]]:
    """Yield the items with the outcomes of their plans, in order, as soon as they can be."""
    early: dict[int, Outcome[R]] = {}
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


@contextmanager
def loading(model: str) -> Iterator[None]:
    """Show that the model is being loaded; the hub's own bars show a download."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("loading {task.description}"), TimeElapsedColumn())
    is_shown = console.is_terminal and not _is_downloaded_first(model)
    with Progress(*columns, console=console, disable=not is_shown, transient=True) as progress:
        progress.add_task(model.replace("[", r"\["), total=None)
        yield


def _is_downloaded_first(model: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    if model.count("/") != 1 or Path(model).exists():
        return False
    try:
        return not isinstance(try_to_load_from_cache(model, "config.json"), str)
    except ValueError:  # no valid id
        return False
