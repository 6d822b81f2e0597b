"""Corpora as a guest of the command: shards of files, and their check."""

from __future__ import annotations

from dise_cluster.runner import Shards
from dise_core import hookimpl


@hookimpl
def dise_commands() -> dict[str, str]:
    """Return the verb `check`."""
    return {"check": "dise_cluster.check:check"}


@hookimpl
def dise_file_runners() -> dict[str, type[Shards]]:
    """Return the runner of shards."""
    return {"shards": Shards}
