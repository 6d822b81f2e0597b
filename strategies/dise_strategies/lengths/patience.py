"""When to stop: after a number of values in a row that do not improve on the best."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """The best value so far, and the number of values since then. Immutable: `after` returns a new
    one.
    """

    limit: int
    best: float = -math.inf
    num_failures: int = 0

    def after(self, value: float) -> Patience:
        """Return the patience after one more value. A strictly greater value resets the count."""
        if value > self.best:
            return Patience(self.limit, value)
        return Patience(self.limit, self.best, self.num_failures + 1)

    @property
    def is_exhausted(self) -> bool:
        """Whether the last `limit` values brought no improvement."""
        return self.num_failures >= self.limit
