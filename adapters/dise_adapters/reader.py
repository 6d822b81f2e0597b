"""How a transformers model answers Reads: few padded batches, and the LM head only where someone asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dise_adapters.readouts import ReadoutGroup, RowAnswers, answer_rows, group_reads, split_answers
from dise_core.arrays import Ids
from dise_core.errors import InputError, ModelError
from dise_core.reading import Read, Reading, Row, distinct_rows

MAX_PADDING = 0.25
"""The share of a batch that padding may take."""

MAX_LOGITS = 2**25
"""Logits that exist at one time: 128 MiB in float32."""

Alignment = Literal["own", "previous", "causal"]
"""The row that answers position i: its own, or the one before it, where position 0 is answered by its own row (Dream's
shift) or, in a causal model, not at all."""


class TransformerReader:
    """Runs a bidirectional transformers model. Stateless between calls.

    body: maps input_ids [B, N] (and an attention mask where rows differ in length) to hidden states [B, N, d];
    head: maps hidden states [R, d] to logits [R, vocab_size]. alignment: which row of the states answers a position.
    """

    def __init__(self, body: Any, head: Any, vocab_size: int, device: torch.device, alignment: Alignment = "own") -> None:
        self._body = body
        self._head = head
        self._vocab_size = vocab_size
        self._device = device
        self._alignment = alignment

    @torch.inference_mode()
    def read(self, reads: Sequence[Read]) -> list[Reading]:
        """Answer the reads in their order. Reads of one text share its row; rows of like length share a batch.

        Out of memory, a batch is halved until it fits. Raises ModelError if one row alone does not.
        """
        if self._alignment == "causal" and any(len(read.positions) and read.positions.min() == 0 for read in reads):
            raise InputError("an auto-regressive model has no answer for the first token of a text; give a prompt", "prompt")
        readings: dict[int, Reading] = {}
        rows = [row for row in distinct_rows(reads) if _num_positions(row, reads)]
        for batch in padded_batches(rows):
            readings.update(self._read_within_memory(batch, reads))
        return [readings.get(index) or _empty_reading() for index in range(len(reads))]

    def _read_within_memory(self, batch: list[Row], reads: Sequence[Read]) -> dict[int, Reading]:
        try:
            return self._read_batch(batch, reads)
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            if len(batch) == 1:
                raise ModelError(
                    f"out of memory on one text of {len(batch[0].token_ids)} tokens; shorten it, or take a smaller dtype "
                    "or a larger device"
                ) from error
        torch.cuda.empty_cache()
        half = len(batch) // 2
        return self._read_within_memory(batch[:half], reads) | self._read_within_memory(batch[half:], reads)

    def _read_batch(self, batch: list[Row], reads: Sequence[Read]) -> dict[int, Reading]:
        indices = [index for row in batch for index in row.reads]
        asked = [reads[index] for index in indices]
        states = self._hidden_states(batch)
        readings: dict[int, Reading] = {}
        for group in group_reads(asked, self._device):
            where, scales = self._places(batch, indices, group, reads)
            answers = self._answers(states, where, scales, group)
            readings.update((indices[index], reading) for index, reading in split_answers(group, answers, asked))
        return readings

    def _hidden_states(self, batch: list[Row]) -> Tensor:
        """Return the hidden states of all sequences of the batch, flattened to [B * N, d]."""
        sequences = [ids for row in batch for ids in _sequences(row)]
        width = max(len(ids) for ids in sequences)
        input_ids = np.zeros((len(sequences), width), dtype=np.int64)
        is_real = np.zeros((len(sequences), width), dtype=np.int64)
        for place, ids in enumerate(sequences):
            input_ids[place, : len(ids)] = ids
            is_real[place, : len(ids)] = 1
        mask = None if is_real.all() else torch.from_numpy(is_real).to(self._device)
        states: Tensor = self._body(torch.from_numpy(input_ids).to(self._device), mask)
        return states.flatten(0, 1)

    def _places(
        self, batch: list[Row], indices: list[int], group: ReadoutGroup, reads: Sequence[Read]
    ) -> tuple[Tensor, Tensor | None]:
        """Return where in the flattened states the group's rows lie, int64 [R] or with guidance [2, R], and its scales [R].

        The second line of places is that of the unconditional text; for rows without guidance it repeats the first and
        the scale is 0.
        """
        starts = _starts(batch)
        places, twins, scales = [], [], []
        for index in (indices[member] for member in group.indices):
            positions, (start, twin) = self._answering(reads[index].positions), starts[index]
            places.append(start + positions)
            twins.append(twin + positions)
            guidance = reads[index].guidance
            scales.append(np.full(len(positions), guidance.scale if guidance else 0.0, dtype=np.float32))
        conditional = torch.from_numpy(np.concatenate(places)).to(self._device)
        if not any(row.guidance for row in batch):
            return conditional, None
        unconditional = torch.from_numpy(np.concatenate(twins)).to(self._device)
        return torch.stack([conditional, unconditional]), torch.from_numpy(np.concatenate(scales)).to(self._device)

    def _answering(self, positions: Ids) -> Ids:
        """Return the rows that answer the positions, int64 [M]."""
        return positions if self._alignment == "own" else np.maximum(positions - 1, 0)

    def _answers(self, states: Tensor, places: Tensor, scales: Tensor | None, group: ReadoutGroup) -> Iterator[RowAnswers]:
        """Yield the answers to the group's rows, in chunks whose logits fit MAX_LOGITS."""
        chunk = max(1, MAX_LOGITS // self._vocab_size)
        for start in range(0, group.num_rows, chunk):
            rows = slice(start, min(start + chunk, group.num_rows))
            if scales is None:
                logits = self._logits(states[places[rows]])
            else:
                conditional, unconditional = (self._logits(states[line[rows]]) for line in places)
                logits = unconditional + (scales[rows, None] + 1) * (conditional - unconditional)
            yield answer_rows(logits, group, rows)

    def _logits(self, states: Tensor) -> Tensor:
        logits: Tensor = self._head(states)
        return logits.float()


def padded_batches(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield the rows in batches, longest first, in which at most MAX_PADDING of the tokens are padding."""
    batch: list[Row] = []
    num_sequences = num_tokens = 0
    for row in sorted(rows, key=lambda row: -len(row.token_ids)):
        num_sequences += row.num_sequences
        num_tokens += row.num_tokens
        if batch and num_tokens < (1 - MAX_PADDING) * num_sequences * len(batch[0].token_ids):
            yield batch
            batch, num_sequences, num_tokens = [], row.num_sequences, row.num_tokens
        batch.append(row)
    if batch:
        yield batch


def _sequences(row: Row) -> list[Ids]:
    return [row.token_ids] if row.guidance is None else [row.token_ids, row.guidance.token_ids]


def _starts(batch: list[Row]) -> dict[int, tuple[int, int]]:
    """Return, for each read, where its text and its unconditional text start in the flattened states."""
    width = len(batch[0].token_ids)
    starts: dict[int, tuple[int, int]] = {}
    line = 0
    for row in batch:
        twin = line + row.num_sequences - 1
        starts.update((index, (line * width, twin * width)) for index in row.reads)
        line += row.num_sequences
    return starts


def _num_positions(row: Row, reads: Sequence[Read]) -> int:
    return sum(len(reads[index].positions) for index in row.reads)


def _empty_reading() -> Reading:
    return Reading(np.zeros(0, np.int64), np.zeros(0, np.float32))


def _is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
