"""Which types of numbers this processor multiplies slowly."""

from functools import cache
from time import perf_counter

import torch

from dise_adapters.local.decoder.linear import linear

SLOW = 1.5
"""Times float32's time. Measured without instructions for float16: 5.6; for bfloat16: 2."""

ROWS, WIDTH, ROUNDS = 64, 512, 7
"""Of a product that takes less than a millisecond, and how often it is tried."""


@cache
def is_slow(dtype: torch.dtype) -> bool:
    """Return whether a layer takes much longer than in float32, by trying both."""
    return dtype != torch.float32 and _seconds(dtype) > SLOW * _seconds(torch.float32)


@torch.inference_mode()
def _seconds(dtype: torch.dtype) -> float:
    layer, times = linear([torch.ones(WIDTH, WIDTH, dtype=dtype)]), list[float]()
    states = torch.ones(ROWS, WIDTH, dtype=dtype)
    for _ in range(ROUNDS):
        started = perf_counter()
        layer(states)
        times.append(perf_counter() - started)
    return min(times)
