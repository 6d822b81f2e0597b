"""Which Reads can share one row of a batch: one rule for engine, cost and predictors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dise_core.arrays import Ids
from dise_core.plans.reading import CacheHint, Guidance, Read


@dataclass(slots=True, eq=False)
class Row:
    """One sequence to run through the model, and the indices of the Reads that it
    answers.

    context_ids, cache_salt, start: see Read. num_shadows: the mask tokens that run beside the
    text.
    """

    token_ids: Ids
    predictor: str
    guidance: Guidance | None
    reads: tuple[int, ...]
    cache: CacheHint | None = None
    context_ids: Ids | None = None
    num_shadows: int = 0
    cache_salt: str = ""
    start: int = 0

    @property
    def num_sequences(self) -> int:
        return 1 if self.guidance is None else 2

    @property
    def num_tokens(self) -> int:
        # Canvases run beside the finished text, and the prompt is part of that alone.
        context = 0 if self.context_ids is None else len(self.context_ids) - self.start
        return (len(self.token_ids) + context + self.num_shadows) * self.num_sequences


def distinct_rows(reads: Sequence[Read]) -> list[Row]:
    """Return the rows of the reads, by first use. Shadows share their text's."""
    if len(reads) == 1:
        return [_row(reads, (0,))]
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, read in enumerate(reads):
        groups.setdefault(row_key(read), []).append(index)
    return [_row(reads, tuple(indices)) for indices in groups.values()]


def _row(reads: Sequence[Read], indices: tuple[int, ...]) -> Row:
    read = reads[indices[0]]
    cache = None if read.guidance else read.cache
    shadowed = [reads[index].positions for index in indices if reads[index].shadow]
    num_shadows = len(np.unique(np.concatenate(shadowed))) if shadowed else 0
    return Row(
        read.token_ids,
        read.predictor,
        read.guidance,
        indices,
        cache,
        read.context_ids,
        num_shadows,
        read.cache_salt,
        read.start,
    )


def row_key(read: Read) -> tuple[object, ...]:
    """Return what Reads have in common that share a row."""
    # Without a context there are no canvases, so where they start makes no difference.
    start = 0 if read.context_ids is None else read.start
    ids = (read.token_ids.tobytes(), _bytes(read.context_ids), start)
    guidance = read.guidance and (
        read.guidance.token_ids.tobytes(),
        _bytes(read.guidance.context_ids),
        read.guidance.scale,
    )
    hint = read.cache, read.cache_salt
    return read.predictor, ids, guidance, *hint, read.noise, read.draws


def _bytes(ids: Ids | None) -> bytes | None:
    return None if ids is None else ids.tobytes()
