"""Devices and types by the names that users give them, and how much memory a device has free."""

import os
from pathlib import Path

import torch
from torch import Tensor

from dise_core import Ids, InputError, LogProbs

LIKE_A_GPU = os.environ.get("DISE_LIKE_A_GPU") == "1"
"""Whether a CPU is treated like a GPU: its weights are not packed, its batches not split for its
cache. Slower, and meant for tests: what a GPU runs can then be run without one.
"""

MEMORY_INFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


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
        problem = f"device {name!r} cannot be used: {str(error).splitlines()[0]}"
        raise InputError(problem, "device") from error
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the torch dtype of that name; "auto" is bfloat16 on a GPU and float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if LIKE_A_GPU or device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def free_bytes(device: torch.device) -> int | None:
    """Return how much more memory can be allocated on the device; None where that is unknown."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    return free_main_memory() if device.type == "cpu" else None


def free_main_memory(info: Path = MEMORY_INFO, cgroup: Path = CGROUP) -> int | None:
    """Return the main memory that the system and this process's container have free, on Linux.
    cgroup: the folder of the container's control group, version 2.
    """
    if not info.is_file():
        return None
    fields = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
    free = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = cgroup / "memory.max", cgroup / "memory.current"
    if limit.is_file() and used.is_file() and (most := limit.read_text().strip()) != "max":
        free = min(free, int(most) - int(used.read_text()) + _reclaimable(cgroup))
    return max(0, free)


def _reclaimable(cgroup: Path) -> int:
    """Return how much of what a control group uses are files that the system may drop."""
    statistics = cgroup / "memory.stat"
    lines = statistics.read_text().splitlines() if statistics.is_file() else []
    return sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))


def on_device(device: torch.device, *arrays: Ids | LogProbs) -> list[Tensor]:
    """Return arrays of the host as tensors on the device."""
    return [torch.from_numpy(array).to(device) for array in arrays]
