"""Mappings from strings to any values: JSON, settings, keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Record = dict[str, Any]

Fields = Mapping[str, Any]
"""A read-only Record."""


def is_deeper(value: Any, most: int) -> bool:
    """Return whether some value lies in more than `most` lists and objects of JSON."""
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)
