"""How a transformers model answers Reads: in few batches with little padding."""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.decoder.backends import without_plans
from dise_adapters.local.decoder.batch import ForwardPass
from dise_adapters.local.decoder.weights import LoadedWeights
from dise_adapters.local.devices import is_gpu, on_device
from dise_adapters.local.reading.batching import batches, text_batch
from dise_adapters.local.reading.conditioning import Conditioning
from dise_adapters.local.reading.layout import Layout, Run
from dise_adapters.local.reading.limit import BatchLimit
from dise_adapters.local.reading.readouts import ReadoutGroup, group_reads, readings_of
from dise_core import Bidirectional, Causal, Ids, InputError, LogProbs, ModelError, Read, Reading
from dise_core.models.predictor import Ability

log = logging.getLogger(__name__)

CPU_TOKENS = 2048
"""The most tokens in a batch on a CPU, whose cache then holds the matmuls' outputs."""

MAX_LOGITS = 2**25
"""The most logits at one time, 128 MiB in float32; on a CPU an eighth, for its cache."""

CPU_ROWS = 64
"""The fewest rows at one time on a CPU, whatever its cache: each product of integers packs the
head anew, which takes as long as 20 rows or more.
"""

Places = tuple[Ids, Ids]
"""The rows of a batch that answer a Read, and those of its unconditional text; without
guidance the two are the same. int64 [M].
"""


class TransformerReader:
    """Answers Reads with a transformers model. body: the model without its head. head:
    maps hidden states [R, d] to logits [R, vocab_size]. conditioning: of a model that is
    self-conditioned.
    """

    def __init__(
        self,
        body: ForwardPass,
        head: Callable[[Tensor], Tensor],
        vocab_size: int,
        device: torch.device,
        layout: Layout,
        conditioning: Conditioning | None = None,
    ) -> None:
        self._conditioning = conditioning
        self._body, self._head, self._vocab_size = body, head, vocab_size
        self._device, self._layout = device, layout
        self.room = layout.room
        self._limits = {False: BatchLimit(), True: BatchLimit()}  # of texts, of windows
        self.weights: LoadedWeights | None = None
        """Those that can be replaced; None where they cannot."""
        overlays = layout.abilities if body.takes_overlays else frozenset()
        self.abilities: frozenset[Ability] = overlays

    @torch.inference_mode()
    def read(self, reads: Sequence[Read]) -> list[Reading]:
        """Return the answers in the order of the reads. Reads of one text share a run;
        runs of similar length share a batch.

        A batch that runs out of memory is halved until it fits, and later ones are as
        small at once. Raises ModelError if a single text does not fit, InputError for
        position 0 of an auto-regressive model.
        """
        is_causal = isinstance(self._layout.attention, Causal)
        if is_causal and any((read.positions == 0).any() for read in reads):
            raise InputError(
                "an auto-regressive model has no answer for the first token of a text; give a "
                "prompt",
                "prompt",
            )
        readings: dict[int, Reading] = {}
        if self._conditioning is not None:
            self._conditioning.forget()
        max_tokens = math.inf if is_gpu(self._device) else CPU_TOKENS
        with closing(self._layout.waves(reads)) as waves:
            for runs in waves:
                for batch in batches(runs, self._body.max_padding, max_tokens):
                    readings.update(self._read_within_memory(batch, reads))
        if self._conditioning is not None:
            self._conditioning.keep()
        return [readings.get(index) or Reading.empty() for index in range(len(reads))]

    def _read_within_memory(self, batch: list[Run], reads: Sequence[Read]) -> dict[int, Reading]:
        limit = self._limits[batch[0].is_window]
        width = max(run.length for run in batch)
        tokens = sum(len(run.token_ids) for run in batch) * width
        if len(batch) == 1 or tokens <= limit.tokens:
            try:
                readings = self._read_batch(batch, reads)
            except RuntimeError as error:
                if not _is_out_of_memory(error):
                    raise
                if len(batch) == 1:
                    raise ModelError(
                        f"out of memory on one text of {width} tokens; shorten it, "
                        "or take a smaller dtype or a larger device"
                    ) from error
            else:
                limit.fitted(tokens)
                return readings
            self._make_smaller(limit, tokens)
        parts = batches(batch, self._body.max_padding, limit.tokens)
        return {
            index: reading
            for part in parts
            for index, reading in self._read_within_memory(part, reads).items()
        }

    def _make_smaller(self, limit: BatchLimit, tokens: int) -> None:
        torch.cuda.empty_cache()
        if math.isinf(limit.tokens):
            log.warning(
                "A batch of %d tokens ran out of memory, and later ones are smaller. On a "
                "GPU, the environment variable "
                "PYTORCH_ALLOC_CONF=expandable_segments:True may make more room.",
                tokens,
            )
        limit.failed(tokens)

    def _read_batch(self, batch: list[Run], reads: Sequence[Read]) -> dict[int, Reading]:
        texts, conditioning = text_batch(batch, self._body.multiple, self.room), self._conditioning
        width = texts.input_ids.shape[1]
        if conditioning is not None:
            texts = replace(texts, soft=conditioning.soft_rows(batch, width))
        rows, questions = self._questions(batch, reads, width)
        with without_plans(self._device, width, texts.keys[1]):
            states = self._body(texts, rows)
        readings: dict[int, Reading] = {}
        size = rows_at_once(self._vocab_size, self._device)
        for groups, lines, scales in questions:
            logits_of: Callable[[slice], Tensor] = partial(self._logits, states, lines, scales)
            if conditioning is not None:
                for group in groups:
                    logits_of = conditioning.noting(group, reads, logits_of)
            readings.update(readings_of(groups, reads, size, logits_of))
        for run in batch:
            self._layout.computed(run)  # its copies do not wait for the pass, which has ended
            if run.groups is None and (share := run.length / len(run.row.token_ids)) < 1:
                is_exact = not isinstance(self._layout.attention, Bidirectional)
                for index in run.row.reads:
                    readings[index] = replace(
                        readings[index], share=share, is_exact=is_exact, num_reused=run.num_reused
                    )
        return readings

    def _questions(
        self, batch: Sequence[Run], reads: Sequence[Read], width: int
    ) -> tuple[Ids, list[tuple[list[ReadoutGroup], Tensor, Tensor]]]:
        """Return the rows of the flattened batch that are read, int64 [R], ascending, and
        groups of reads that the same logits answer, with the indices into those rows and
        guidance scales: so a drawn and a likeliest token take one product with the head.

        All go to the device before the forward pass, so that no copy has to wait for it.
        width: of the batch.
        """
        places: dict[int, Places] = {}
        text = 0
        for run in batch:
            twin = text + len(run.token_ids) - 1
            for index, columns in zip(run.row.reads, run.columns, strict=True):
                places[index] = (text * width + columns, twin * width + columns)
            text = twin + 1
        groups = group_reads({index: reads[index] for index in places})
        lines_of = [_lines([(reads[i], places[i]) for i in group.indices]) for group in groups]
        rows = np.unique(np.concatenate([lines.ravel() for lines, _ in lines_of]))
        shared: dict[tuple[bytes, bytes], tuple[list[ReadoutGroup], Tensor, Tensor]] = {}
        for repeating, (lines, scales) in zip(groups, lines_of, strict=True):
            group, stays = repeating.without_repeats(lines[0])
            indices, scale = np.searchsorted(rows, lines[:, stays]), scales[stays]
            key = indices.tobytes(), scale.tobytes()
            if key not in shared:
                placed, guidance = on_device(self._device, indices, scale)
                shared[key] = [], placed, guidance
            shared[key][0].append(group.to(self._device))
        return rows, list(shared.values())

    def _logits(self, states: Tensor, lines: Tensor, scales: Tensor, rows: slice) -> Tensor:
        """Return the guided logits of some rows of a group."""
        logits, *unconditional = (self._head(states[line[rows]]).float() for line in lines)
        for base in unconditional:
            logits = base + (scales[rows, None] + 1) * (logits - base)
            logits.masked_fill_(base.isneginf(), -torch.inf)  # it was inf - inf
        return logits


def rows_at_once(vocab_size: int, device: torch.device) -> int:
    """Return how many rows of logits fit MAX_LOGITS, at least 1, on a CPU at least CPU_ROWS."""
    if is_gpu(device):
        return max(1, MAX_LOGITS // vocab_size)
    return max(CPU_ROWS, MAX_LOGITS // 8 // vocab_size)


def _lines(pairs: Sequence[tuple[Read, Places]]) -> tuple[Ids, LogProbs]:
    """Return the rows of the flattened batch that answer the reads, int64 [1, R], and
    their guidance scales, float32 [R].

    If any read is guided the shape is [2, R], with the rows of the unconditional texts
    second; a read without guidance then repeats its rows, with scale 0.
    """
    is_guided = any(read.guidance for read, _ in pairs)
    lines = [np.concatenate([places[i] for _, places in pairs]) for i in range(1 + is_guided)]
    scales = [
        np.full(len(rows), read.guidance.scale if read.guidance else 0.0, np.float32)
        for read, (rows, _) in pairs
    ]
    return np.stack(lines), np.concatenate(scales)


def _is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
