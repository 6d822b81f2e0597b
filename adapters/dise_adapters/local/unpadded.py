"""A batch of texts of unequal length without its padding, which only attention needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.padding import padded_rows
from dise_core.arrays import Ids, Mask

LEAST_PADDING = 0.1
"""The share of padding in a batch from which removing it, layer by layer, is cheaper than computing
it.
"""


@dataclass(frozen=True, slots=True)
class Unpadded:
    """Index maps between a padded batch [B, N] and its T tokens without padding.

    rows: the row of each token in the flattened padded batch, int64 [T], T padded by padded_rows;
    None if T is B * N. tokens: the token at each of those rows, int64 [B * N], 0 at padding; None
    if the padding is kept. Both are on the device; `index` is `tokens` on the host.
    """

    shape: tuple[int, int]
    rows: Tensor | None = None
    tokens: Tensor | None = None
    index: Ids | None = None

    @classmethod
    def of(cls, is_real: Mask | None, shape: tuple[int, int], device: torch.device) -> Unpadded:
        """Return the maps of a batch. is_real: bool [B, N], False at padding; None if none is."""
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
        """Return the unpadded tokens [T, ...] of a padded batch [B, N, ...]."""
        flat = padded.flatten(0, 1)
        return flat if self.rows is None else flat.index_select(0, self.rows)

    def padded(self, packed: Tensor) -> Tensor:
        """Return the padded batch [B, N, ...] of unpadded tokens [T, ...]; padding is finite."""
        if self.tokens is None:
            flat = packed[: math.prod(self.shape)]
        else:
            flat = packed.index_select(0, self.tokens)
        return flat.view(*self.shape, *flat.shape[1:])

    def which(self, rows: Ids) -> Ids:
        """Return the unpadded index of each row, int64 [R], none of which may be padding."""
        return rows if self.index is None else self.index[rows]
