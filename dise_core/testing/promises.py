"""How a conformance check names the promise that is broken."""

from __future__ import annotations


def expect(condition: bool, promise: str) -> None:
    """Raise AssertionError with the promise unless the condition holds."""
    if not condition:
        raise AssertionError(promise)
