"""A progress bar on standard error, for more than a few items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

A_FEW = 4


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar, which shows the count, the time elapsed and the time
    left, on a terminal only.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, disable=total <= A_FEW or not console.is_terminal, transient=True
    ) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)
