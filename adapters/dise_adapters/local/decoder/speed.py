"""Which types of numbers this processor multiplies fast, and which slowly."""

from functools import cache
from time import perf_counter

import torch

from dise_adapters.local.decoder.linear import linear

SLOW = 1.5
"""Times float32's time. Measured without instructions for float16: 5.6; for bfloat16: 2."""

ROWS, WIDTH, ROUNDS = 64, 512, 7
"""Of a product that takes less than a millisecond, and how often it is tried."""

INSTRUCTIONS = {
    torch.bfloat16: {"avx512_bf16", "amx_bf16"},
    torch.float16: {"avx512_fp16", "amx_fp16"},
}
"""Of x86, by what they multiply."""


@cache
def multiplies(dtype: torch.dtype) -> bool:
    """Return whether the processor has products of a type of 16 bits. By its flags alone, as a
    measurement may say otherwise in the next run.
    """
    has = torch.cpu.get_capabilities()
    kernels = "bf16" if dtype == torch.bfloat16 else "fp16"
    is_allowed = getattr(torch.ops.mkldnn, f"_is_mkldnn_{kernels}_supported")()
    return bool(is_allowed) and any(has.get(name) for name in INSTRUCTIONS.get(dtype, ()))


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
