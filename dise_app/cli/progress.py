"""Progress on the terminal: of a model being loaded, and of requests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def progress_bar(
    total: int, console: Console | None = None, is_wanted: bool = True
) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar, which shows the count, the time elapsed and the time
    left, if it is wanted and on a terminal only: that of the console, else of standard error.

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
