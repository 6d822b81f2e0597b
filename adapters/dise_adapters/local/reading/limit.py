"""How large a batch may be, by what ran out of memory."""

import math

RETRY = 128
"""Passes that must have fitted before a larger batch is tried again."""

GROWTH = 1.25
"""How many times larger it is."""


class BatchLimit:
    """The tokens that a batch may have, padding included: without bound until one runs
    out of memory, then as many as fitted, and rarely more.
    """

    def __init__(self) -> None:
        self.tokens = math.inf
        self._most_fitted = self._num_fitted = 0

    def fitted(self, tokens: int) -> None:
        """Record that a batch of so many tokens had enough memory."""
        self._most_fitted = max(self._most_fitted, tokens)
        self._num_fitted += 1
        if self._num_fitted % RETRY == 0:
            self.tokens *= GROWTH

    def failed(self, tokens: int) -> None:
        """Record that it had not. A smaller one that fitted before may still be too large
        now.
        """
        fitted = self._most_fitted if self._most_fitted < tokens else 0
        self.tokens = max(fitted, tokens // 2)
        self._most_fitted, self._num_fitted = fitted, 0
