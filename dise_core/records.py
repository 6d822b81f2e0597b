"""Type aliases for mappings from strings to any values: JSON, settings, keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Record = dict[str, Any]

Fields = Mapping[str, Any]
"""A read-only Record."""
