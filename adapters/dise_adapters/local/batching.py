"""Groups rows into batches with little padding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dise_core.rows import Row

MAX_KEY_PADDING = 0.5
"""The largest share of a cached batch's keys that may be padding: a smaller one splits batches up,
a larger one pads short texts' keys to the length of the longest.
"""


@dataclass(slots=True, eq=False)
class Window(Row):
    """The part of a row that runs against the cached keys and values of the rest.

    first: the position where it begins. num_keys: the length of the text, all of which it attends
    to.
    """

    first: int = field(default=0, kw_only=True)
    num_keys: int = field(default=0, kw_only=True)

    @property
    def share(self) -> float:
        """The share of the text's positions that are computed."""
        return len(self.token_ids) / self.num_keys


def padded_batches(
    rows: Sequence[Row], max_padding: float, max_tokens: float = math.inf
) -> Iterator[list[Row]]:
    """Yield the rows in batches, longest first; at most `max_padding` of a batch's tokens are
    padding.

    A batch of several rows holds at most `max_tokens` tokens, padding included. Windows are ordered
    by the length of their texts, and at most MAX_KEY_PADDING of a batch's keys are padding.
    """
    batch: list[Row] = []
    filled = _Filled()
    for row in sorted(rows, key=lambda row: (-_num_keys(row), -len(row.token_ids))):
        more = filled.plus(row)
        if batch and not more.is_within(max_padding, max_tokens):
            yield batch
            batch, more = [], _Filled().plus(row)
        batch.append(row)
        filled = more
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class _Filled:
    """The size of a batch: its sequences, their tokens and keys, and the most tokens and keys of
    any one sequence.
    """

    sequences: int = 0
    tokens: int = 0
    keys: int = 0
    width: int = 0
    most_keys: int = 0

    def plus(self, row: Row) -> _Filled:
        count, num_keys = row.num_sequences, _num_keys(row)
        return _Filled(
            self.sequences + count,
            self.tokens + row.num_tokens,
            self.keys + count * num_keys,
            max(self.width, len(row.token_ids)),
            max(self.most_keys, num_keys),
        )

    def is_within(self, max_padding: float, max_tokens: float) -> bool:
        """Return whether one batch may be that large, and has little enough padding."""
        padded, padded_keys = self.sequences * self.width, self.sequences * self.most_keys
        is_dense = (
            self.tokens >= (1 - max_padding) * padded
            and self.keys >= (1 - MAX_KEY_PADDING) * padded_keys
        )
        return is_dense and padded <= max_tokens


def _num_keys(row: Row) -> int:
    """Return how many keys the row's tokens attend to."""
    return row.num_keys if isinstance(row, Window) else len(row.token_ids)


def first_of(row: Row) -> int:
    """Return the position in the text at which the row begins."""
    return row.first if isinstance(row, Window) else 0
