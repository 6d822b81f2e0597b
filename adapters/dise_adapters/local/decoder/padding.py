"""The padding of texts in a batch, of rows of a matmul, and of keys of CPU attention."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.devices import is_gpu, on_device
from dise_core import Ids, Mask

CPU_MULTIPLE = 8
"""To a multiple of this a CPU's texts, keys and last queries are padded: attention there
consists of such small matmuls that 61 keys take longer than 64.
"""

STEP, FEW_ROWS, NUM_STEPS, LONG_STEP = 8, 32, 16, 64
"""A matmul's rows are padded to a multiple of STEP up to FEW_ROWS, and beyond to one of NUM_STEPS
parts of the next power of two, of LONG_STEP rows at most: 60 counts up to 2048, and little padding
in any of them.
"""

GPU_QUERIES = 32
"""The same of a GPU's last queries: the rows that are read become fewer with each step,
and a kernel computes as many at a time in any case.
"""

MIN_PADDING = 0.1
"""The share of padding from which removing it is cheaper than computing it."""


def padded_texts(rows: Sequence[Ids], multiple: int) -> tuple[Ids, Mask | None]:
    """Return rows of ids as int64 [B, N], padded with 0, N a multiple of `multiple`, and
    which are not padding, bool [B, N]; None if all.
    """
    width = -(-max(map(len, rows)) // multiple) * multiple
    ids, is_real = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.bool_)
    for index, row in enumerate(rows):
        ids[index, : len(row)], is_real[index, : len(row)] = row, True
    return ids, None if is_real.all() else is_real


def padded_rows(indices: Ids, device: torch.device) -> Ids:
    """Return indices int64 [R], on a CPU padded with zeros so that few different R occur.

    oneDNN compiles a kernel for each new number of rows and keeps it: compiling takes
    time, and the kernels pile up in memory.
    """
    if is_gpu(device):
        return indices
    return np.pad(indices, (0, padding_of(len(indices))))


def padding_of(num_rows: int) -> int:
    """Return how many rows of padding padded_rows adds on a CPU."""
    part = (1 << (num_rows - 1).bit_length()) // NUM_STEPS
    return -num_rows % (STEP if num_rows <= FEW_ROWS else min(part, LONG_STEP))


def key_width(num_keys: int, device: torch.device) -> int:
    """Return to how many keys a causal mask is padded on a CPU, so that a token's
    attention is the same to the bit whatever keys that it does not see stand behind its
    own.

    Attention takes 512 keys at a time. MKL adds up to 192 of them one by one, and more in
    parts that depend on how many there are. Measured with AVX-512.
    """
    if is_gpu(device):
        return num_keys
    remainder = num_keys % 512
    return num_keys + (512 - remainder if remainder > 192 else -remainder % 16)


@dataclass(frozen=True, slots=True)
class Unpadded:
    """Index maps between a padded batch [B, N] and its T tokens without padding.

    rows: the row of each token in the flattened padded batch, int64 [T], T padded by
    padded_rows; None if T is B * N. tokens: the token at each of those rows, int64 [B *
    N], 0 at padding; None if the padding is kept. Both are on the device; `index` is
    `tokens` on the host.
    """

    shape: tuple[int, int]
    rows: Tensor | None = None
    tokens: Tensor | None = None
    index: Ids | None = None

    @classmethod
    def of(cls, is_real: Mask | None, shape: tuple[int, int], device: torch.device) -> Self:
        """Return a batch's maps. is_real: bool [B, N], False at padding; None if none."""
        size = math.prod(shape)
        if is_real is None or is_real.mean() > 1 - MIN_PADDING:
            rows = padded_rows(np.arange(size), device)
            return cls(shape, None if len(rows) == size else torch.from_numpy(rows).to(device))
        real = np.flatnonzero(is_real)
        index = np.zeros(size, np.int64)
        index[real] = np.arange(len(real))
        of_tokens, of_rows = on_device(device, padded_rows(real, device), index)
        return cls(shape, of_tokens, of_rows, index)

    def packed(self, padded: Tensor) -> Tensor:
        """Return the unpadded tokens [T, ...] of a padded batch [B, N, ...]."""
        flat = padded.flatten(0, 1)
        return flat if self.rows is None else flat.index_select(0, self.rows)

    def padded(self, packed: Tensor) -> Tensor:
        """Return the padded batch [B, N, ...] of tokens [T, ...]; padding is finite."""
        if self.tokens is None:
            flat = packed[: math.prod(self.shape)]
        else:
            flat = packed.index_select(0, self.tokens)
        return flat.view(*self.shape, *flat.shape[1:])

    def which(self, rows: Ids) -> Ids:
        """Return the unpadded index of each row, int64 [R]; none may be padding."""
        return rows if self.index is None else self.index[rows]
