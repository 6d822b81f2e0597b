"""Formats that several entry points share: KEY=VALUE settings, JSON lines that may end in a torn
line, and indented JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dise_core.errors import InputError
from dise_core.records import Fields, Record


def settings(pairs: Iterable[str]) -> Record:
    """Return the settings of KEY=VALUE pairs; a value that is valid JSON is parsed.

    Raises InputError for any other text and for a key that is given twice.
    """
    found: Record = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InputError(f"a setting is written KEY=VALUE, not {pair!r}")
        if key in found:
            raise InputError(f"setting {key!r} is given twice")
        found[key] = _json_or_text(value)
    return found


def whole_lines(path: Path) -> list[bytes]:
    """Return a file's complete lines, none if there is no file. A torn last line, from a run that
    was killed while writing, is removed from the file.

    Raises OSError if the file cannot be read or written.
    """
    if not path.exists():
        return []
    whole = path.read_bytes()
    kept = whole[: whole.rfind(b"\n") + 1]
    if len(kept) < len(whole):
        with path.open("r+b") as file:
            file.truncate(len(kept))
    return kept.split(b"\n")[:-1]


def write_json(path: Path, record: Fields) -> None:
    """Write a record as indented JSON in UTF-8. Raises OSError if the file cannot be written."""
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
