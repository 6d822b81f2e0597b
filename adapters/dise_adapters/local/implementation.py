"""Which implementation of attention a class of transformers is asked for."""

from __future__ import annotations

from typing import Any


def implementation_of(kind: Any, config: object, name: str) -> str:
    """Return the name, or "eager" in place of "sdpa" for a class that lacks that: from transformers
    5.20 on Gemma 2, whose capped scores it cannot compute.

    kind: the class, or an Auto class, for which the configuration tells which it is.
    """
    if name != "sdpa":
        return name
    if not hasattr(kind, "config_class"):
        kind = kind._model_mapping.get(type(config), None)
    return "sdpa" if getattr(kind, "_supports_sdpa", True) else "eager"
