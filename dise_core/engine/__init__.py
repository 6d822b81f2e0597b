"""Runs many plans at once and batches their reads."""

from dise_core.engine.async_engine import AsyncEngine
from dise_core.engine.engine import Engine, Outcome

__all__ = ["AsyncEngine", "Engine", "Outcome"]
