"""Progress on the terminal: of a model being loaded, and of requests."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

INTERVAL = 30.0
"""Seconds between lines of progress."""


@contextmanager
def progress_bar(
    total: int, console: Console | None = None, is_wanted: bool = True
) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar, which shows the count, the time elapsed and the time
    left, if it is wanted and on a terminal: that of the console, else of standard error. Where that
    is none, a line on standard error tells the count every INTERVAL seconds.

    What is printed meanwhile goes where it always goes.
    """
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

    console = console or Console(stderr=True)
    if is_wanted and total > 1 and not console.is_terminal:
        with _told(total) as count:
            yield count
        return
    counted = (BarColumn(), MofNCompleteColumn()) if total > 1 else ()
    left = (TextColumn("left"), TimeRemainingColumn()) if total > 1 else ()
    columns = (SpinnerColumn(), *counted, TimeElapsedColumn(), *left)
    with Progress(
        *columns,
        console=console,
        disable=not (is_wanted and console.is_terminal),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def _told(total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts what is done, which a thread of its own tells now and then."""
    started, num_done, is_over = time.monotonic(), 0, threading.Event()

    def count(number: int) -> None:
        nonlocal num_done
        num_done += number

    def tell() -> None:
        while not is_over.wait(INTERVAL):
            seconds = time.monotonic() - started
            print(f"dise: {num_done}/{total} done after {seconds:.0f} s", file=sys.stderr)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield count
    finally:
        is_over.set()
        thread.join()


@contextmanager
def loading(model: str) -> Iterator[None]:
    """Show on standard error, if it is a terminal, that the model is being loaded, and for how
    long. The hub's own bars show a download.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("loading {task.description}"), TimeElapsedColumn())
    is_shown = console.is_terminal and not _is_downloaded_first(model)
    with Progress(*columns, console=console, disable=not is_shown, transient=True) as progress:
        progress.add_task(model.replace("[", r"\["), total=None)
        yield


def _is_downloaded_first(model: str) -> bool:
    """Return whether it is a hub id that is not on this machine yet."""
    from huggingface_hub import try_to_load_from_cache

    if model.count("/") != 1 or Path(model).exists():
        return False
    try:
        return not isinstance(try_to_load_from_cache(model, "config.json"), str)
    except ValueError:  # no valid id
        return False
