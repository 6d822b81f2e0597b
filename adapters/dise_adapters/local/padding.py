"""The three kinds of padding: texts in a batch, rows of a matmul, and keys of CPU attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dise_adapters.local.devices import is_gpu
from dise_core.arrays import Ids, Mask

CPU_MULTIPLE = 8
"""CPU attention consists of such small matmuls that 61 keys take longer than 64."""

FEW_ROWS, STEP, LONG_STEP = 256, 16, 64
"""A matmul's rows are padded to a multiple of STEP, and above FEW_ROWS of LONG_STEP."""


def padded_texts(rows: Sequence[Ids], multiple: int = 1) -> tuple[Ids, Mask | None]:
    """Return rows of ids as int64 [B, N], padded with 0, and which are not padding, bool [B, N];
    None if all.

    N is the least multiple of `multiple` that holds the longest row.
    """
    width = -(-max(map(len, rows)) // multiple) * multiple
    ids, is_real = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.bool_)
    for index, row in enumerate(rows):
        ids[index, : len(row)], is_real[index, : len(row)] = row, True
    return ids, None if is_real.all() else is_real


def padded_rows(indices: Ids, device: torch.device) -> Ids:
    """Return indices int64 [R], on a CPU padded with zeros so that few different R occur.

    oneDNN compiles a kernel for each new number of rows and keeps it: compiling takes time, and the
    kernels pile up in memory.
    """
    if is_gpu(device):
        return indices
    step = STEP if len(indices) <= FEW_ROWS else LONG_STEP
    return np.pad(indices, (0, -len(indices) % step))


def key_multiple(device: torch.device) -> int:
    """Return the multiple to which texts, and the keys that they attend to, are padded."""
    return 1 if is_gpu(device) else CPU_MULTIPLE
