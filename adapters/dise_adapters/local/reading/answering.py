"""An adapter's own logits, answered as the built-in families answer theirs."""

import torch
from torch import Tensor

from dise_adapters.local.reading.reader import rows_at_once
from dise_adapters.local.reading.readouts import group_reads, readings_of
from dise_core import InputError, Read, Reading


@torch.inference_mode()
def answer(logits: Tensor, read: Read) -> Reading:
    """Return the answer to a Read from the logits [M, V] at its positions, of any float
    type and on any device; they stay as they are. Guidance is the caller's, before it.
    Raises InputError for another number of rows.
    """
    num_rows = len(read.positions)
    if logits.ndim != 2 or len(logits) != num_rows:
        raise InputError(
            f"The logits that answer a Read of {num_rows} positions must be "
            f"[{num_rows}, V], not {list(logits.shape)}.",
            "logits",
        )
    if num_rows == 0:
        return Reading.empty()

    def copied(rows: slice) -> Tensor:
        return logits[rows].to(torch.float32, copy=True)

    [group], size = group_reads({0: read}), rows_at_once(logits.shape[1], logits.device)
    [(_, reading)] = readings_of([group.to(logits.device)], [read], size, copied)
    return reading
