"""How a transformers model answers Reads: in few batches with little padding, and with the LM head
only at the positions that are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dise_adapters.families.family import AnswersFor
from dise_adapters.local.batching import Window, first_of, padded_batches
from dise_adapters.local.body import Batch, Body
from dise_adapters.local.devices import is_gpu
from dise_adapters.local.kv_cache import KVCache
from dise_adapters.local.overlays import Overlaid, Overlays, in_two_streams, with_shadows
from dise_adapters.local.padding import padded_texts
from dise_adapters.local.passes import cached_pass
from dise_adapters.local.readouts import (
    ReadoutGroup,
    RowAnswers,
    answer_rows,
    group_reads,
    split_answers,
)
from dise_core.arrays import Ids, LogProbs
from dise_core.blocks import BlockGrid
from dise_core.errors import InputError, ModelError
from dise_core.model import BIDIRECTIONAL, Ability, Attention, BlockCausal, Causal
from dise_core.reading import CacheHint, Read, Reading
from dise_core.rows import Row, distinct_rows

CPU_TOKENS = 2048
"""The most tokens in a batch on a CPU: enough for matmuls at full speed, few enough for their
outputs to fit the CPU's cache.
"""

MAX_LOGITS = 2**25
"""The most logits in memory at one time, 128 MiB in float32; on a CPU an eighth of that, which fits
its cache.
"""

LEAST_SHARED = 64
"""The fewest tokens whose keys and values a new text adopts: for fewer, a copy and a later pass
cost more than they save.
"""


Places = tuple[Ids, Ids]
"""The rows of a batch that answer a Read, and those of its unconditional text; without guidance the
two are the same. int64 [M].
"""


class TransformerReader:
    """Answers Reads with a transformers model. Between calls it keeps only what a Read's CacheHint
    permits.

    body: the model without its head. head: maps hidden states [R, d] to logits [R, vocab_size].
    answers_for: which position a row of logits predicts. attention: the model's; under causal
    attention position 0 has no answer. room: the KV cache; None for a model without one. mask_id:
    the model's mask token, if it has one.
    """

    def __init__(
        self,
        body: Body,
        head: Any,
        vocab_size: int,
        device: torch.device,
        answers_for: AnswersFor = "own",
        attention: Attention = BIDIRECTIONAL,
        room: KVCache | None = None,
        mask_id: int | None = None,
    ) -> None:
        self._body = body
        self._head = head
        self._vocab_size = vocab_size
        self._device = device
        self._answers_for = answers_for
        self._attention, self._mask_id = attention, mask_id
        self._answers_first = not isinstance(attention, Causal)
        self._blocks: BlockGrid | None = None
        if isinstance(attention, BlockCausal):
            self._blocks = BlockGrid(attention.length)
        self.room = room
        self.abilities = self._abilities()

    def _abilities(self) -> frozenset[Ability]:
        if not self._body.takes_overlays or isinstance(self._attention, Causal):
            return frozenset()
        some: list[Ability] = ["two-stream"] if self._blocks else []
        return frozenset(some if self._mask_id is None else [*some, "shadow"])

    @torch.inference_mode()
    def read(self, reads: Sequence[Read]) -> list[Reading]:
        """Return the answers in the order of the reads. Reads of one text share a row; rows of
        similar length share a batch.

        A batch that runs out of memory is halved until it fits. Raises ModelError if a single row
        does not fit, InputError for position 0 of an auto-regressive model.
        """
        if not self._answers_first and any((read.positions == 0).any() for read in reads):
            raise InputError(
                "an auto-regressive model has no answer for the first token of a text; give a "
                "prompt",
                "prompt",
            )
        readings: dict[int, Reading] = {}
        asked = [row for row in distinct_rows(reads) if _num_positions(row, reads)]
        max_tokens = math.inf if is_gpu(self._device) else CPU_TOKENS
        for wave in self._waves(asked):
            rows = [self._run(row, reads) for row in wave]
            # Windows attend to cached keys, whole rows to their own, overlays to parts of a text: a
            # batch holds one kind only.
            for kind in (Row, Window, Overlaid):
                some = [row for row in rows if type(row) is kind]
                for batch in padded_batches(some, self._body.max_padding, max_tokens):
                    readings.update(self._read_within_memory(batch, reads))
        return [readings.get(index) or Reading.of_nothing() for index in range(len(reads))]

    def _waves(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return the rows in the order in which they run: new texts that begin like another new
        one run after it, and adopt its keys and values.
        """
        if self.room is None or self._blocks is None:
            return [list(rows)]
        first, second, beginnings = list[Row](), list[Row](), set[bytes]()
        for row in rows:
            is_new = row.cache is not None and self.room.is_new(row.cache.slot)
            begins = row.token_ids[:LEAST_SHARED].tobytes()
            follows = is_new and begins in beginnings
            if is_new and len(row.token_ids) >= LEAST_SHARED:
                beginnings.add(begins)
            (second if follows else first).append(row)
        return [first, second]

    def _run(self, row: Row, reads: Sequence[Read]) -> Row:
        """Return what is run of the row: all of it, with its overlays if it has some, or its window
        if the rest is cached.
        """
        if row.context_ids is not None and self._blocks:
            return in_two_streams(row, reads, self._blocks.length, self._answers_for)
        if row.num_shadows and self._mask_id is not None:
            kind = (self._attention, self._answers_for, self._mask_id)
            return with_shadows(row, reads, *kind)
        hint = row.cache
        length = len(row.token_ids)
        if hint is None or self.room is None:
            return row
        if self._adopts(row, hint, reads):
            start, stop = self.room.current(hint.slot), length
        elif hint.window is None or not self.room.holds(hint, length):
            return row
        else:
            start, stop = self._exact(hint, length) if self._blocks else hint.window
        # Where row i - 1 answers for position i, the window must include one position more.
        first = start if self._answers_for == "own" else max(0, start - 1)
        ids = row.token_ids[first:stop]
        text = (ids, row.predictor, None, row.reads, hint)
        return Window(*text, first=first, num_keys=length)

    def _adopts(self, row: Row, hint: CacheHint, reads: Sequence[Read]) -> bool:
        """Return whether the row is a new text whose first blocks, before any position that is
        read, have got the keys and values of another text.
        """
        if self._blocks is None or self.room is None or not self.room.is_new(hint.slot):
            return False
        first = int(np.concatenate([reads[index].positions for index in row.reads]).min())
        count = self._blocks.start_of(self.room.num_cached(row.token_ids[:first]))
        return count >= LEAST_SHARED and self.room.adopt(hint, row.token_ids, count)

    def _exact(self, hint: CacheHint, length: int) -> tuple[int, int]:
        """Return the hint's window, widened until its answers are those of the whole text.

        Earlier blocks never see later ones, so whole blocks against current keys and values are
        exact. A block that began before the window, or goes on behind it, has cached keys that have
        seen the window's old tokens.
        """
        assert self._blocks is not None
        assert self.room is not None
        assert hint.window is not None
        start, stop = hint.window
        start = self._blocks.start_of(min(start, self.room.current(hint.slot)))
        return start, min(self._blocks.start_of(stop - 1) + self._blocks.length, length)

    def _read_within_memory(self, batch: list[Row], reads: Sequence[Read]) -> dict[int, Reading]:
        try:
            return self._read_batch(batch, reads)
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            if len(batch) == 1:
                raise ModelError(
                    f"out of memory on one text of {len(batch[0].token_ids)} tokens; shorten it, "
                    "or take a smaller dtype or a larger device"
                ) from error
        torch.cuda.empty_cache()
        half = len(batch) // 2
        first = self._read_within_memory(batch[:half], reads)
        return first | self._read_within_memory(batch[half:], reads)

    def _read_batch(self, batch: list[Row], reads: Sequence[Read]) -> dict[int, Reading]:
        indices = [index for row in batch for index in row.reads]
        asked = [reads[index] for index in indices]
        texts = [ids for row in batch for ids in _sequences(row)]
        input_ids, is_real = padded_texts(texts, self._body.multiple)
        width = input_ids.shape[1]
        places = self._places(batch, reads, width)
        rows, questions = self._questions(asked, [places[index] for index in indices])
        cached = None
        if self.room is not None and any(row.cache for row in batch):
            cached = cached_pass(self.room, batch, is_real, width, self._body.multiple)
        overlays = Overlays.of(batch, width) if isinstance(batch[0], Overlaid) else None
        states = self._body(Batch(input_ids, is_real, rows, cached, overlays))
        for row in batch:
            if row.cache is not None and self.room is not None:
                self.room.computed(row.cache.slot, first_of(row), row.token_ids)
        readings: dict[int, Reading] = {}
        for group, lines, scales in questions:
            answers = self._answers(states, lines, scales, group)
            for member, reading in split_answers(group, answers, asked):
                readings[indices[member]] = reading
        for row in batch:
            if isinstance(row, Window):
                for i in row.reads:
                    is_exact = row.share == 1 or self._blocks is not None
                    readings[i] = replace(readings[i], share=row.share, is_exact=is_exact)
        return readings

    def _questions(
        self, asked: Sequence[Read], places: Sequence[Places]
    ) -> tuple[Ids, list[tuple[ReadoutGroup, Tensor, Tensor]]]:
        """Return the rows of the flattened batch that are read, int64 [R], ascending, and for each
        group of reads: the group, the indices into those rows that answer it, and guidance scales.

        All go to the device before the forward pass, so that no copy has to wait for it.
        """
        groups = group_reads(asked)
        where = [_lines([(asked[i], places[i]) for i in group.indices]) for group in groups]
        rows = np.unique(np.concatenate([lines.ravel() for lines, _ in where]))
        questions = []
        for whole, (lines, scales) in zip(groups, where, strict=True):
            group, stays = whole.without_repeats(lines[0])
            among = torch.from_numpy(np.searchsorted(rows, lines[:, stays])).to(self._device)
            scale = torch.from_numpy(scales[stays]).to(self._device)
            questions.append((group.to(self._device), among, scale))
        return rows, questions

    def _places(self, batch: list[Row], reads: Sequence[Read], width: int) -> dict[int, Places]:
        """Return for each read the rows of the flattened states [B * width, d] that answer it."""
        places: dict[int, Places] = {}
        line = 0
        for row in batch:
            twin = line + row.num_sequences - 1
            for index, columns in zip(row.reads, self._columns(row, reads), strict=True):
                places[index] = (line * width + columns, twin * width + columns)
            line += row.num_sequences
        return places

    def _columns(self, row: Row, reads: Sequence[Read]) -> Iterable[Ids]:
        """Return for each read of the row the tokens of it that answer for its positions."""
        if isinstance(row, Overlaid):
            return row.columns
        return [self._answering(reads[index].positions) - first_of(row) for index in row.reads]

    def _answering(self, positions: Ids) -> Ids:
        """Return the rows of a text whose logits answer for the positions, int64 [M]."""
        return positions if self._answers_for == "own" else np.maximum(positions - 1, 0)

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
    """Return how many rows of logits fit MAX_LOGITS, at least 1."""
    return max(1, (MAX_LOGITS if is_gpu(device) else MAX_LOGITS // 8) // vocab_size)


def _sequences(row: Row) -> list[Ids]:
    return [row.token_ids] if row.guidance is None else [row.token_ids, row.guidance.token_ids]


def _lines(asked: Sequence[tuple[Read, Places]]) -> tuple[Ids, LogProbs]:
    """Return the rows of the flattened batch that answer the reads, int64 [1, R], and their
    guidance scales, float32 [R].

    If any read is guided the shape is [2, R], with the rows of the unconditional texts second; a
    read without guidance then repeats its rows, with scale 0.
    """
    is_guided = any(read.guidance for read, _ in asked)
    lines = [np.concatenate([places[i] for _, places in asked]) for i in range(1 + is_guided)]
    scales = [
        np.full(len(rows), read.guidance.scale if read.guidance else 0.0, np.float32)
        for read, (rows, _) in asked
    ]
    return np.stack(lines), np.concatenate(scales)


def _num_positions(row: Row, reads: Sequence[Read]) -> int:
    return sum(len(reads[index].positions) for index in row.reads)


def _is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
