"""When to stop trying: after so many attempts in a row that were no better than the best."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """The best value seen, and how many since were no improvement. It never changes: `after`
    returns a new one.
    """

    limit: int
    best: float = -math.inf
    num_failures: int = 0

    def after(self, value: float) -> Patience:
        """Return the patience after one more value. Only a strictly greater one is an improvement;
        it resets the count.
        """
        if value > self.best:
            return Patience(self.limit, value)
        return Patience(self.limit, self.best, self.num_failures + 1)

    @property
    def is_exhausted(self) -> bool:
        """True after `limit` failures in a row."""
        return self.num_failures >= self.limit
