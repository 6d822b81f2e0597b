"""Runs many plans at once and batches what they ask."""

from dise_core.engine.engine import Engine, Outcome

__all__ = ["Engine", "Outcome"]
