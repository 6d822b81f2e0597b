"""Which of torch's kernels computes attention on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dise_adapters.local.devices import is_gpu

LONG, TILE = 2048, 128
"""From how many keys on, and for which multiples of queries and keys, cuDNN's plan pays."""


@contextmanager
def without_plans(device: torch.device, queries: int, keys: int) -> Iterator[None]:
    """Let attention on a GPU be flash's or the memory-efficient kernel's, unless it is long
    and of whole tiles.

    torch asks cuDNN first on Hopper and later. It plans each new shape for 20 to 40 ms, and
    shapes hardly repeat here; where they are long, it is about twice as fast as flash.
    """
    flags = torch.backends.cuda
    is_tiled = keys >= LONG and not (queries % TILE or keys % TILE)
    was_on = flags.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    if is_tiled or not was_on or not is_gpu(device):
        yield
        return
    flags.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        flags.enable_cudnn_sdp(True)
