"""Runs many plans at once and batches their reads."""

from dise_core.engine.async_engine import AsyncEngine
from dise_core.engine.caller import Caller
from dise_core.engine.engine import Engine

__all__ = ["AsyncEngine", "Caller", "Engine"]
