"""How a transformers model answers Reads: few padded batches, and the LM head only where someone
asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dise_adapters.forward import Forward
from dise_adapters.kept import KeptKeys, Pass, padded
from dise_adapters.readouts import ReadoutGroup, RowAnswers, answer_rows, group_reads, split_answers
from dise_core.arrays import Ids, LogProbs, Mask
from dise_core.errors import InputError, ModelError
from dise_core.reading import Read, Reading
from dise_core.rows import Row, distinct_rows

CPU_TOKENS = 2048
"""Tokens of a batch on a CPU: its matrix products are at full speed by then, and what they make
still fits the cache.
"""

MAX_LOGITS = 2**25
"""Logits that exist at one time, 128 MiB in float32; on a CPU an eighth of them, which stay in the
cache.
"""

Alignment = Literal["own", "previous", "causal"]
"""The row that answers position i: its own, or the one before it, where position 0 is answered by
its own row (Dream's shift) or, in a causal model, not at all.
"""


MAX_KEY_PADDING = 0.5
"""The share of the keys of a cached batch that padding may take: less splits batches, more makes
all keys as long as one.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Window(Row):
    """The part of a row that runs against what is kept of the rest.

    first: where in the text it begins. num_keys: the length of the text, whose keys it attends to.
    """

    first: int = 0
    num_keys: int = 0

    @property
    def share(self) -> float:
        """The share of the text's positions that it computes."""
        return len(self.token_ids) / self.num_keys


class TransformerReader:
    """Runs a bidirectional transformers model. Between calls it keeps nothing but what a read's
    cache hint allows.

    forward: the model's body; head: maps its hidden states [R, d] to logits [R, vocab_size].
    alignment: which row of the states answers a position. kept: where keys and values go, the
    reader's `room`; None keeps none.
    """

    def __init__(
        self,
        forward: Forward,
        head: Any,
        vocab_size: int,
        device: torch.device,
        alignment: Alignment = "own",
        kept: KeptKeys | None = None,
    ) -> None:
        self._forward = forward
        self._head = head
        self._vocab_size = vocab_size
        self._device = device
        self._alignment = alignment
        self.room = kept

    @torch.inference_mode()
    def read(self, reads: Sequence[Read]) -> list[Reading]:
        """Answer the reads in their order. Reads of one text share its row; rows of like length
        share a batch.

        Out of memory, a batch is halved until it fits. Raises ModelError if one row alone does not.
        """
        if self._alignment == "causal" and any(
            len(read.positions) and read.positions.min() == 0 for read in reads
        ):
            raise InputError(
                "an auto-regressive model has no answer for the first token of a text; give a "
                "prompt",
                "prompt",
            )
        readings: dict[int, Reading] = {}
        rows = [self._run(row) for row in distinct_rows(reads) if _num_positions(row, reads)]
        max_tokens = CPU_TOKENS if self._device.type == "cpu" else math.inf
        for kind in (False, True):
            some = [row for row in rows if isinstance(row, Window) == kind]
            for batch in padded_batches(some, self._forward.max_padding, max_tokens):
                readings.update(self._read_within_memory(batch, reads))
        return [readings.get(index) or Reading.of_nothing() for index in range(len(reads))]

    def _run(self, row: Row) -> Row:
        """Return what of the row must run: all of it, or its window where the rest is kept."""
        hint = row.cache
        if (
            hint is None
            or hint.window is None
            or self.room is None
            or not self.room.holds(hint, len(row.token_ids))
        ):
            return row
        start, stop = hint.window
        first = start if self._alignment == "own" else max(0, start - 1)
        return Window(
            row.token_ids[first:stop],
            row.predictor,
            None,
            row.reads,
            hint,
            first,
            len(row.token_ids),
        )

    def _read_within_memory(self, batch: list[Row], reads: Sequence[Read]) -> dict[int, Reading]:
        try:
            return self._read_batch(batch, reads)
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            if len(batch) == 1:
                raise ModelError(
                    f"out of memory on one text of {len(batch[0].token_ids)} tokens; shorten it, "
                    "or take a smaller dtype "
                    "or a larger device"
                ) from error
        torch.cuda.empty_cache()
        half = len(batch) // 2
        return self._read_within_memory(batch[:half], reads) | self._read_within_memory(
            batch[half:], reads
        )

    def _read_batch(self, batch: list[Row], reads: Sequence[Read]) -> dict[int, Reading]:
        indices = [index for row in batch for index in row.reads]
        asked = [reads[index] for index in indices]
        groups = group_reads(asked)
        input_ids, is_real = padded(
            [ids for row in batch for ids in _sequences(row)], self._forward.multiple
        )
        starts = _starts(batch, input_ids.shape[1])
        where = [
            self._places(
                [(reads[indices[member]], starts[indices[member]]) for member in group.indices]
            )
            for group in groups
        ]
        places = np.unique(np.concatenate([lines.ravel() for lines, _ in where]))
        questions: list[
            tuple[ReadoutGroup, Tensor, Tensor]
        ] = []  # on the device before the pass, which is not waited for
        for whole, (lines, scales) in zip(groups, where, strict=True):
            group, stays = whole.without_repeats(lines[0])
            rows = torch.from_numpy(np.searchsorted(places, lines[:, stays])).to(self._device)
            questions.append(
                (group.to(self._device), rows, torch.from_numpy(scales[stays]).to(self._device))
            )
        kept = self._pass(batch, np.ones(input_ids.shape, np.bool_) if is_real is None else is_real)
        states = self._forward(input_ids, is_real, places, kept)
        readings: dict[int, Reading] = {}
        for group, rows, scale in questions:
            answers = self._answers(states, rows, scale, group)
            readings.update(
                (indices[index], reading) for index, reading in split_answers(group, answers, asked)
            )
        windows = [row for row in batch if isinstance(row, Window)]
        return readings | {
            i: replace(readings[i], share=row.share, is_exact=row.share == 1)
            for row in windows
            for i in row.reads
        }

    def _pass(self, batch: list[Row], is_real: Mask) -> Pass | None:
        """Return what of the batch is kept, and read of what was; None if nothing is. is_real: bool
        [B, W].
        """
        if self.room is None or not any(row.cache for row in batch):
            return None
        lines = [row for row in batch for _ in range(row.num_sequences)]
        slots = [row.cache.slot if row.cache and self._is_kept(row) else None for row in lines]
        places = [self.room.places(slot) for slot in slots if slot is not None]
        if not places:
            return None
        spans = [
            (_first(row), len(row.token_ids))
            for row, slot in zip(lines, slots, strict=True)
            if slot is not None
        ]
        written = [
            kept[first : first + count] for kept, (first, count) in zip(places, spans, strict=True)
        ]
        is_kept = is_real & np.array([slot is not None for slot in slots])[:, None]
        positions = np.array([_first(row) for row in lines])[:, None] + np.arange(is_real.shape[1])
        stands, fresh, put = (
            torch.from_numpy(array).to(self._device)
            for array in (positions, np.flatnonzero(is_kept), np.concatenate(written))
        )
        if not isinstance(batch[0], Window):
            return Pass(self.room.memory(), stands, fresh, put)
        read, is_key = padded(places, self._forward.multiple)
        return Pass(
            self.room.memory(), stands, fresh, put, torch.from_numpy(read).to(self._device), is_key
        )

    def _is_kept(self, row: Row) -> bool:
        """Return whether there is room to keep a row; a window's text is kept already."""
        if row.cache is None or self.room is None:
            return False
        return isinstance(row, Window) or self.room.take(row.cache.slot, len(row.token_ids))

    def _places(self, asked: Sequence[tuple[Read, tuple[int, int]]]) -> tuple[Ids, LogProbs]:
        """Return where in the flattened batch the answers to the reads lie, int64 [1, R], and their
        scales [R].

        Where a read is guided there are two lines, [2, R]: the second is that of the unconditional
        text. For reads without guidance it repeats the first and the scale is 0.
        """
        places, twins, scales = [], [], []
        for read, (start, twin) in asked:
            positions = self._answering(read.positions)
            places.append(start + positions)
            twins.append(twin + positions)
            scales.append(
                np.full(
                    len(positions), read.guidance.scale if read.guidance else 0.0, dtype=np.float32
                )
            )
        lines = [places, twins] if any(read.guidance for read, _ in asked) else [places]
        return np.stack([np.concatenate(line) for line in lines]), np.concatenate(scales)

    def _answering(self, positions: Ids) -> Ids:
        """Return the rows that answer the positions, int64 [M]."""
        return positions if self._alignment == "own" else np.maximum(positions - 1, 0)

    def _answers(
        self, states: Tensor, lines: Tensor, scales: Tensor, group: ReadoutGroup
    ) -> Iterator[RowAnswers]:
        """Yield the answers to the group's rows, in chunks whose logits fit MAX_LOGITS."""
        chunk = rows_at_once(self._vocab_size, self._device)
        for start in range(0, group.num_rows, chunk):
            rows = slice(start, min(start + chunk, group.num_rows))
            logits, *unconditional = (self._logits(states[line[rows]]) for line in lines)
            for other in unconditional:
                logits = other + (scales[rows, None] + 1) * (logits - other)
            answer = answer_rows(logits, group, rows)
            del logits, unconditional  # before the next ones are made
            yield answer

    def _logits(self, states: Tensor) -> Tensor:
        logits: Tensor = self._head(states)
        return logits.float()


def rows_at_once(vocab_size: int, device: torch.device) -> int:
    """Return how many rows of logits may exist at one time."""
    return max(1, (MAX_LOGITS // 8 if device.type == "cpu" else MAX_LOGITS) // vocab_size)


def padded_batches(
    rows: Sequence[Row], max_padding: float, max_tokens: float = math.inf
) -> Iterator[list[Row]]:
    """Yield the rows in batches, longest first, in which at most a share of `max_padding` of the
    tokens is padding.

    A batch of several rows holds at most `max_tokens` tokens, padding counted. Windows are ordered
    by their texts' length, and at most MAX_KEY_PADDING of the keys that they attend to are padding.
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
    """What a batch holds: sequences, their tokens and keys, and the most of either in one
    of them.
    """

    sequences: int = 0
    tokens: int = 0
    keys: int = 0
    width: int = 0
    most_keys: int = 0

    def plus(self, row: Row) -> _Filled:
        """Return the same with a row more."""
        count, num_keys = row.num_sequences, _num_keys(row)
        return _Filled(
            self.sequences + count,
            self.tokens + row.num_tokens,
            self.keys + count * num_keys,
            max(self.width, len(row.token_ids)),
            max(self.most_keys, num_keys),
        )

    def is_within(self, max_padding: float, max_tokens: float) -> bool:
        """Return whether so much may be one batch."""
        padded, padded_keys = self.sequences * self.width, self.sequences * self.most_keys
        is_dense = (
            self.tokens >= (1 - max_padding) * padded
            and self.keys >= (1 - MAX_KEY_PADDING) * padded_keys
        )
        return is_dense and padded <= max_tokens


def _num_keys(row: Row) -> int:
    """Return how many keys the row's tokens attend to."""
    return row.num_keys if isinstance(row, Window) else len(row.token_ids)


def _first(row: Row) -> int:
    """Return where in its text the row's sequence begins."""
    return row.first if isinstance(row, Window) else 0


def _sequences(row: Row) -> list[Ids]:
    return [row.token_ids] if row.guidance is None else [row.token_ids, row.guidance.token_ids]


def _starts(batch: list[Row], width: int) -> dict[int, tuple[int, int]]:
    """Return, for each read, where its text and its unconditional text start in the flattened
    states [B * width, d].
    """
    starts: dict[int, tuple[int, int]] = {}
    line = 0
    for row in batch:
        twin = line + row.num_sequences - 1
        first = _first(row)
        starts.update((index, (line * width - first, twin * width - first)) for index in row.reads)
        line += row.num_sequences
    return starts


def _num_positions(row: Row, reads: Sequence[Read]) -> int:
    return sum(len(reads[index].positions) for index in row.reads)


def _is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
