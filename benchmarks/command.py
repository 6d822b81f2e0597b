"""What the benchmarks share as commands: their options, their tables, and their memory."""

from __future__ import annotations

import argparse
from pathlib import Path


class Parser(argparse.ArgumentParser):
    """Reads a benchmark's options; --tiny sets the smallest, which show only that it runs."""

    def __init__(self, description: str | None) -> None:
        super().__init__(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self.add_argument("--tiny", action="store_true", help="show that it runs, measure nothing")

    def options(self, **tiny: object) -> argparse.Namespace:
        """Return the options of the command line; tiny: the defaults under --tiny."""
        if self.parse_known_args()[0].tiny:
            self.set_defaults(**tiny)
        return self.parse_args()


def head(*names: str) -> None:
    """Print the head of a table, whose first column holds names."""
    row(*names)
    row("---", *["---:"] * (len(names) - 1))


def row(*cells: object) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def resident(field: str) -> float:
    """Return a field of this process's memory status in MiB."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024
