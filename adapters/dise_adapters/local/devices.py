"""Devices and types by the names that users give, and a device's free memory."""

import torch
from torch import Tensor

from dise_adapters.local.free_memory import free_main_memory
from dise_core import Ids, InputError, LogProbs

LIKE_A_GPU = False
"""Whether a CPU is treated like a GPU: its weights are not packed, its batches not split
for its cache. Slower, and set by tests: what a GPU runs can then be run without one.
"""


def is_gpu(device: torch.device) -> bool:
    """Return whether to compute as on a GPU."""
    return LIKE_A_GPU or device.type != "cpu"


def choose_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device {name!r} cannot be used: {str(error).splitlines()[0]}", "device"
        ) from None
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype of a name; "auto" is bfloat16 on a GPU, float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if LIKE_A_GPU or device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def free_bytes(device: torch.device) -> int | None:
    """Return how many bytes are free on the device; None where that is unknown."""
    if device.type == "cuda":
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + idle
    return free_main_memory() if device.type == "cpu" else None


def on_device(device: torch.device, *arrays: Ids | LogProbs) -> list[Tensor]:
    """Return arrays of the host as tensors on the device."""
    return [torch.from_numpy(array).to(device) for array in arrays]
