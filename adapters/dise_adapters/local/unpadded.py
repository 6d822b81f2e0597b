"""A batch of texts of unequal length without its padding, which attention alone needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.padding import padded_rows
from dise_core.arrays import Ids, Mask

LEAST_PADDING = 0.1
"""The share of a batch from which on its padding costs more than leaving it out, layer by layer."""


@dataclass(frozen=True, slots=True)
class Unpadded:
    """Where the tokens of B padded texts [B, N] lie when they stand one after the other, [T].

    rows: of each token in the flattened padded batch, int64 [T], padded to a number of rows that
    matmuls like; None where T is B * N. tokens: which of them each row shows, int64 [B * N],
    padding the first; None where padding stays. On the device, and on the host as `index`.
    """

    shape: tuple[int, int]
    rows: Tensor | None = None
    tokens: Tensor | None = None
    index: Ids | None = None

    @classmethod
    def of(cls, is_real: Mask | None, shape: tuple[int, int], device: torch.device) -> Unpadded:
        """Return the form of a batch; is_real: bool [B, N], None where no text is padded."""
        size = math.prod(shape)
        if is_real is None or is_real.mean() > 1 - LEAST_PADDING:
            rows = padded_rows(np.arange(size), device)
            return cls(shape, None if len(rows) == size else torch.from_numpy(rows).to(device))
        real = np.flatnonzero(is_real)
        index = np.zeros(size, np.int64)
        index[real] = np.arange(len(real))
        rows = padded_rows(real, device)
        packed, tokens = (torch.from_numpy(each).to(device) for each in (rows, index))
        return cls(shape, packed, tokens, index)

    def packed(self, padded: Tensor) -> Tensor:
        """Return [T, ...] of [B, N, ...]."""
        flat = padded.flatten(0, 1)
        return flat if self.rows is None else flat.index_select(0, self.rows)

    def padded(self, packed: Tensor) -> Tensor:
        """Return [B, N, ...] of [T, ...]; what stands where nothing is real, is finite."""
        if self.tokens is None:
            flat = packed[: math.prod(self.shape)]
        else:
            flat = packed.index_select(0, self.tokens)
        return flat.view(*self.shape, *flat.shape[1:])

    def which(self, rows: Ids) -> Ids:
        """Return the tokens that stand at rows of the flattened padded batch that are real."""
        return rows if self.index is None else self.index[rows]
