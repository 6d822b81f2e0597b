"""A batch of texts of unequal length without its padding: the padded form is for
attention alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dise_adapters.packed import filled_up
from dise_core.arrays import Ids, Mask

LEAST_PADDING = 0.1
"""The share of a batch from which on its padding costs more than leaving it out, layer by layer."""


@dataclass(frozen=True, slots=True)
class Ragged:
    """Where the tokens of B padded texts [B, N] lie when they stand one after the other, [T].

    places: of each token in the flattened padded form, int64 [T], filled up to a number of rows
    that products like; None where T is B * N. tokens: which of them each place shows, int64 [B *
    N], padding the first; None where padding stays. On the device, and on the host as `index`.
    """

    shape: tuple[int, int]
    places: Tensor | None = None
    tokens: Tensor | None = None
    index: Ids | None = None

    @classmethod
    def of(cls, is_real: Mask | None, shape: tuple[int, int], device: torch.device) -> Ragged:
        """Return the form of a batch; is_real: bool [B, N], None where no text is padded."""
        size = math.prod(shape)
        if is_real is None or is_real.mean() > 1 - LEAST_PADDING:
            places = filled_up(np.arange(size), device)
            return cls(shape, None if len(places) == size else torch.from_numpy(places).to(device))
        real = np.flatnonzero(is_real)
        index = np.zeros(size, np.int64)
        index[real] = np.arange(len(real))
        places = filled_up(real, device)
        return cls(
            shape, torch.from_numpy(places).to(device), torch.from_numpy(index).to(device), index
        )

    def packed(self, padded: Tensor) -> Tensor:
        """Return [T, ...] of [B, N, ...]."""
        flat = padded.flatten(0, 1)
        return flat if self.places is None else flat.index_select(0, self.places)

    def padded(self, packed: Tensor) -> Tensor:
        """Return [B, N, ...] of [T, ...]; what stands where nothing is real, is finite."""
        flat = (
            packed[: math.prod(self.shape)]
            if self.tokens is None
            else packed.index_select(0, self.tokens)
        )
        return flat.view(*self.shape, *flat.shape[1:])

    def which(self, places: Ids) -> Ids:
        """Return the tokens that stand at real places of the flattened padded form."""
        return places if self.index is None else self.index[places]
