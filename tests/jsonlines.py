"""Files of JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def written(path: Path, *rows: object) -> Path:
    """Write the rows; a text stands as it is."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def records_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def answers_of(path: Path) -> list[Any]:
    """Return the answers in a file, without the time that each took."""
    answers = records_of(path)
    for answer in answers:
        del answer["usage"]["seconds"]
    return answers
