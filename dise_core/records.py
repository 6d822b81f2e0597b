"""Names for what has string keys and values of any kind: JSON, settings, keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Record = dict[str, Any]

Fields = Mapping[str, Any]
"""A Record that is only read."""
