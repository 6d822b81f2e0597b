"""The time that a program spends in one of its functions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Stopwatch:
    """Adds up the time spent inside a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._function = function

    def __getattr__(self, name: str) -> Any:
        """Return what else the function has to say of itself."""
        return getattr(self._function, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        started = time.perf_counter()
        try:
            return self._function(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - started
            self.calls += 1
