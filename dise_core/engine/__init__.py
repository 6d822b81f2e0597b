"""Runs many plans at once and batches their reads."""

from dise_core.engine.async_engine import AsyncEngine
from dise_core.engine.caller import Budget, Caller
from dise_core.engine.engine import Engine, Outcome

__all__ = ["AsyncEngine", "Budget", "Caller", "Engine", "Outcome"]
