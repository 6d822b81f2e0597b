"""The three paddings: texts of a batch, rows of a matmul, and keys of attention on a CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dise_core.arrays import Ids, Mask

CPU_MULTIPLE = 8
"""Attention on a CPU is made of matmuls so small that those with 61 keys take longer than those
with 64.
"""

FEW_ROWS, STEP, LONG_STEP = 256, 16, 64
"""Up to FEW_ROWS the rows of a matmul are a multiple of STEP, above of LONG_STEP."""


def padded_texts(rows: Sequence[Ids], multiple: int = 1) -> tuple[Ids, Mask | None]:
    """Return rows of ids as one array, int64 [B, N], padded with 0, and which of them are real,
    bool [B, N]; None if all are.

    N: the least multiple of `multiple` that holds them.
    """
    width = -(-max(map(len, rows)) // multiple) * multiple
    ids, is_real = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.bool_)
    for index, row in enumerate(rows):
        ids[index, : len(row)], is_real[index, : len(row)] = row, True
    return ids, None if is_real.all() else is_real


def padded_rows(indices: Ids, device: torch.device) -> Ids:
    """Return indices int64 [R], on a CPU with zeros behind them up to one of few numbers of rows.

    oneDNN compiles a matmul anew for each number of rows that it meets, and keeps it: that costs
    time, and memory without end.
    """
    if device.type != "cpu":
        return indices
    step = STEP if len(indices) <= FEW_ROWS else LONG_STEP
    return np.pad(indices, (0, -len(indices) % step))


def key_multiple(device: torch.device) -> int:
    """Return the multiple that the lengths of texts, and of what they attend to, are padded to."""
    return CPU_MULTIPLE if device.type == "cpu" else 1
