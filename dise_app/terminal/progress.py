"""Progress on the terminal; requests answered in order, and the line at their end."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dise_core import LLM, Outcome, Plan

T = TypeVar("T")
R = TypeVar("R")

INTERVAL = 30.0
"""Seconds between two lines of progress."""


@contextmanager
def progress_bar(
    total: int, console: Console | None = None, is_wanted: bool = True, parts: str = ""
) -> Iterator[Callable[[float], None]]:
    """Yield a function that advances a bar with the count, the time elapsed and the time
    left, on the console or else on standard error. Where that is no terminal, a line on
    standard error says the same every INTERVAL seconds. is_wanted: False shows nothing.
    parts: what is counted, where it advances by fractions too: then a share is shown,
    even of one.
    """
    console, is_counted = console or Console(stderr=True), total > 1 or bool(parts)
    if is_wanted and is_counted and not console.is_terminal:
        with _telling(total, parts) as advance:
            yield advance
        return
    count = TaskProgressColumn() if parts else MofNCompleteColumn()
    bar = (BarColumn(), count) if is_counted else ()
    remaining = (TextColumn("left"), TimeRemainingColumn()) if is_counted else ()
    with Progress(
        *(SpinnerColumn(), *bar, TimeElapsedColumn(), *remaining),
        console=console,
        disable=not (is_wanted and console.is_terminal),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def _telling(total: int, parts: str) -> Iterator[Callable[[float], None]]:
    """Tell in a thread, so that a line comes while nothing ends, too."""
    num_done, started, is_over = 0.0, time.monotonic(), Event()

    def advance(count: float) -> None:
        nonlocal num_done
        num_done += count

    def tell() -> None:
        before = 0.0
        while not is_over.wait(INTERVAL):
            now, seconds = num_done, time.monotonic() - started
            count = f"{now / total:.0%} of {total} {parts}" if parts else f"{now:.0f}/{total}"
            num_seconds = INTERVAL * (total - now) / (now - before) if now > before else None
            remaining = "" if num_seconds is None else f", about {num_seconds:.0f} s left"
            sys.stderr.write(f"dise: {count} done after {seconds:.0f} s{remaining}\n")
            before = now

    thread = Thread(target=tell, name="dise-progress", daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        is_over.set()
        thread.join()


def in_order(
    llm: LLM, items: Sequence[T], plan_of: Callable[[T], Plan[R]], advance: Callable[[int], None]
) -> Iterator[tuple[T, Outcome[R]]]:
    """Yield the items with their plans' outcomes, in order, as soon as possible."""
    early: dict[int, Outcome[R]] = {}
    index = 0
    for outcome in llm.run(plan_of(item) for item in items):
        advance(1)
        early[outcome.index] = outcome
        while index in early:
            yield items[index], early.pop(index)
            index += 1


def close(num_answered: int, num_failed: int, is_told: bool = False) -> None:
    """Print counts if any failed or is_told. Raises typer.Exit(1) if any failed."""
    if num_failed or is_told:
        failed = f", {num_failed} failed" if num_failed else ""
        print(f"dise: {num_answered} answered{failed}", file=sys.stderr)
    if num_failed:
        raise typer.Exit(1)


@contextmanager
def opening(model: str) -> Iterator[None]:
    """Show that the model is being opened; the hub's own bars show a download."""
    console = Console(stderr=True)
    is_shown = console.is_terminal and not _is_downloaded_first(model)
    with _spinning(console, "loading {task.description}", not is_shown) as progress:
        progress.add_task(model.replace("[", r"\["), total=None)
        yield


@contextmanager
def loading(model: str) -> Iterator[Callable[[float], None]]:
    """Yield a function that shows the share of the model's weights that is read, and how
    long the others take, on a terminal at once, elsewhere in a line every INTERVAL
    seconds.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _printed_at_times(model)
        return
    text = "loading {task.description} {task.percentage:.0f}%"
    remaining = (TextColumn("left"), TimeRemainingColumn())
    with _spinning(console, text, False, BarColumn(), *remaining) as progress:
        task = progress.add_task(model.replace("[", r"\["), total=1.0)
        yield lambda share: progress.update(task, completed=share)


def _spinning(console: Console, text: str, is_hidden: bool, *more: ProgressColumn) -> Progress:
    columns = (SpinnerColumn(), TextColumn(text), TimeElapsedColumn(), *more)
    return Progress(*columns, console=console, disable=is_hidden, transient=True)


def _printed_at_times(model: str) -> Callable[[float], None]:
    """Return a function that prints the share of a model that is loaded, at most every
    INTERVAL seconds.
    """
    started = printed = time.monotonic()

    def tell(share: float) -> None:
        nonlocal printed
        now = time.monotonic()
        if now - printed >= INTERVAL:
            printed, seconds = now, now - started
            rest = seconds * (1 - share) / share
            text = f"dise: loading {model}: {share:.0%} after {seconds:.0f} s"
            print(f"{text}, about {rest:.0f} s left", file=sys.stderr)

    return tell


def _is_downloaded_first(model: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    if model.count("/") != 1 or Path(model).exists():
        return False
    try:
        return not isinstance(try_to_load_from_cache(model, "config.json"), str)
    except ValueError:  # no valid id
        return False
