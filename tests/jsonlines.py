"""Files of JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def records_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]
