"""Self-conditioning: what a step predicted is kept, softly, for the next step of its slot."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.reading.layout import Run
from dise_adapters.local.reading.readouts import ReadoutGroup
from dise_core import CacheSlot, Candidates, Ids, Read

SOFTENED_ROWS = 256
"""Rows of probabilities that are held at one time, so that each part of the vocabulary is
embedded once for all of them."""

VOCABULARY_PART = 2**15
"""Tokens whose embeddings are held at one time."""


class Signal(NamedTuple):
    """Soft embeddings [M, d] at a text's positions, int64 [M]."""

    positions: Ids
    embeddings: Tensor


class Conditioning:
    """Soft embeddings of canvases that are written: for each position the mean of all
    tokens' embeddings by the probabilities from which its candidate was drawn, one vector
    instead of a vocabulary of logits.
    """

    def __init__(self, embed: Callable[[Tensor], Tensor], vocab_size: int, device: torch.device):
        """embed: returns the embeddings [K, d] of token ids, int64 [K] on the device."""
        self._embed, self._vocab_size, self._device = embed, vocab_size, device
        self._kept: weakref.WeakKeyDictionary[CacheSlot, Signal] = weakref.WeakKeyDictionary()
        self._pending: dict[CacheSlot, Signal] = {}

    def soft_rows(self, batch: Sequence[Run], width: int) -> tuple[Ids, Tensor] | None:
        """Return the rows of a flattened batch of that width that are read beside a soft
        embedding, int64 [S], and these, [S, d]; None if none is.
        """
        rows, signals, text = list[Ids](), list[Tensor](), 0
        for run in batch:
            signal = self._signal(run)
            if signal is not None and run.groups is not None and run.positions is not None:
                columns = np.flatnonzero(run.groups)
                places, positions = run.positions[columns], signal.positions
                _, in_places, in_signal = np.intersect1d(
                    places, positions, True, return_indices=True
                )
                rows.append(text * width + columns[in_places])
                signals.append(signal.embeddings[torch.from_numpy(in_signal)])
            text += len(run.token_ids)
        return (np.concatenate(rows), torch.cat(signals)) if rows else None

    def noting(
        self, group: ReadoutGroup, reads: Sequence[Read], logits_of: Callable[[slice], Tensor]
    ) -> Callable[[slice], Tensor]:
        """Return `logits_of` for a group; where its Reads draw candidates and have slots, what
        it returns is noted. Slices come in order.
        """
        slots = [hint and hint.slot for hint in (reads[index].cache for index in group.indices)]
        readout = group.readout
        if not (isinstance(readout, Candidates) and readout.is_drawn and any(slots)):
            return logits_of
        divisor, waiting, softened = readout.divisor, list[Tensor](), list[Tensor]()

        def noted(rows: slice) -> Tensor:
            logits, is_last = logits_of(rows), rows.stop == group.num_rows
            waiting.append((logits / divisor).softmax(-1))
            if is_last or sum(map(len, waiting)) >= SOFTENED_ROWS:
                softened.append(self._softened(torch.cat(waiting)))
                waiting.clear()
            if is_last:
                self._note([reads[index] for index in group.indices], torch.cat(softened))
            return logits

        return noted

    def keep(self) -> None:
        """Keep what was noted for the next Reads of each slot. A call that fails keeps
        nothing, so that it can be made again.
        """
        self._kept.update(self._pending)
        self._pending.clear()

    def forget(self) -> None:
        """Drop what was noted and not kept."""
        self._pending.clear()

    def _signal(self, run: Run) -> Signal | None:
        hint = run.row.cache
        return None if hint is None or hint.window is None else self._kept.get(hint.slot)

    def _note(self, reads: Sequence[Read], embeddings: Tensor) -> None:
        parts = torch.split(embeddings, [len(read.positions) for read in reads])
        for read, part in zip(reads, parts, strict=True):
            if read.cache is not None:
                self._pending[read.cache.slot] = Signal(read.positions, part)

    def _softened(self, probabilities: Tensor) -> Tensor:
        """Return the mean embeddings [R, d] by probabilities, float32 [R, V]."""
        total: Tensor | float = 0.0
        for start in range(0, self._vocab_size, VOCABULARY_PART):
            stop = min(start + VOCABULARY_PART, self._vocab_size)
            part = self._embed(torch.arange(start, stop, device=self._device))
            weights = probabilities[:, start:stop].to(part.dtype)
            total = total + (weights @ part).float()
        assert isinstance(total, Tensor)
        return total.to(part.dtype)
