"""Which Reads can share one row of a batch. The engine, the cost of a plan and the predictors all
follow this one rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dise_core.arrays import Ids
from dise_core.reading import CacheHint, Guidance, Read


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One sequence to run through the model, and the indices of the Reads that it answers."""

    token_ids: Ids
    predictor: str
    guidance: Guidance | None
    reads: tuple[int, ...]
    cache: CacheHint | None = None

    @property
    def num_sequences(self) -> int:
        """The row's NFE: 2 with guidance, else 1."""
        return 1 if self.guidance is None else 2

    @property
    def num_tokens(self) -> int:
        """The number of tokens that this row adds to a batch."""
        return len(self.token_ids) * self.num_sequences


def distinct_rows(reads: Sequence[Read]) -> list[Row]:
    """Return the rows that answer the reads, in order of first use. Reads with equal token ids,
    predictor, guidance and cache hint share a row.
    """
    if len(reads) == 1:
        return [_row(reads[0], (0,))]
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, read in enumerate(reads):
        groups.setdefault(_key(read), []).append(index)
    return [_row(reads[indices[0]], tuple(indices)) for indices in groups.values()]


def _row(read: Read, indices: tuple[int, ...]) -> Row:
    cache = None if read.guidance else read.cache
    return Row(read.token_ids, read.predictor, read.guidance, indices, cache)


def _key(read: Read) -> tuple[object, ...]:
    guidance = read.guidance and (read.guidance.token_ids.tobytes(), read.guidance.scale)
    return read.predictor, read.token_ids.tobytes(), guidance, read.cache
