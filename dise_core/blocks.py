"""A grid of blocks over a text's positions."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockGrid:
    """Blocks of `length` positions, one of which begins at position `origin`."""

    length: int
    origin: int = 0

    def start_of(self, position: int) -> int:
        """Return the first position of the block that holds the position; the text's own
        for a block that begins before it.
        """
        return max(0, position - (position - self.origin) % self.length)

    def spans(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the half-open range of each block in [start, stop), clipped to that range."""
        while start < stop:
            end = min(start + self.length - (start - self.origin) % self.length, stop)
            yield start, end
            start = end
