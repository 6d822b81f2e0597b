"""An append-only file of finished items: a run killed at any point resumes after the last complete
line.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from dise_app.texts import whole_lines
from dise_core.errors import InputError
from dise_core.records import Fields, Record


class Journal:
    """JSON lines: first the run's key, then one record per finished item, each with its id."""

    def __init__(self, path: Path, key: Fields) -> None:
        """Open the journal, or create it. Raises InputError, naming the difference, if it belongs
        to another run.
        """
        self.path = path
        self.records: dict[str, Record] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = whole_lines(path)
        if lines:
            self._check(json.loads(lines[0]), json.loads(json.dumps(key)))
            self.records = {record["id"]: record for record in map(json.loads, lines[1:])}
        self._file = path.open("a", encoding="utf-8")
        if not lines:
            self._write(dict(key))

    def add(self, record: Record) -> None:
        """Append a finished item; it is on disk when this returns."""
        self._write(record)
        self.records[record["id"]] = record

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, record: Record) -> None:
        self._file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _check(self, found: Record, key: Record) -> None:
        for name in {**found, **key}:
            if found.get(name) != key.get(name):
                differs = f"its {name} is {found.get(name)!r}, not {key.get(name)!r}"
                raise InputError(
                    f"{self.path} holds another run: {differs}; use another --output", "output"
                )
