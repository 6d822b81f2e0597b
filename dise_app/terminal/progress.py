"""Progress on the terminal: of a model being loaded, and of requests."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
