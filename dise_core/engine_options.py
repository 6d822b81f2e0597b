"""The options of EngineConfig as keyword arguments, and which of them fit together."""

from __future__ import annotations

import re
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypedDict

from dise_core.records import Fields, Record

if TYPE_CHECKING:
    from dise_core.calibration import Calibration

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["int8", "int4"]
DeviceMap = Literal["auto", "balanced", "balanced_low_0", "sequential"]

NOT_VLLMS = ("device", "attn_implementation", "device_map", "quantization", "judge_device")
"""What vLLM decides itself, or has arguments of its own for."""

VLLMS = ("tensor_parallel_size", "vllm_options")


class EngineOptions(TypedDict, total=False):
    """The fields of EngineConfig as keyword arguments."""

    max_num_seqs: int
    max_batch_tokens: int
    device: str
    dtype: Dtype
    device_map: DeviceMap | None
    max_memory: Record
    quantization: Quantization | None
    judge_device: str | None
    judge_dtype: Dtype | None
    attn_implementation: str
    revision: str | None
    adapter: str | None
    mask_token_id: int | None
    block_size: int | None
    engine: str
    tensor_parallel_size: int
    vllm_options: Record
    max_cache_tokens: int | None
    calibration: str | PathLike[str] | Calibration | None


def check_vllm(engine: str, changed: Fields) -> None:
    """Raise ValueError for an option that the engine does not have. changed: the options that are
    not at their defaults, by name.
    """
    if engine != "vllm" and any(changed.get(name) for name in VLLMS):
        raise ValueError("tensor_parallel_size and vllm_options need engine='vllm'")
    not_vllms = [name for name in NOT_VLLMS if name in changed]
    if engine == "vllm" and not_vllms:
        raise ValueError(
            "engine='vllm' chooses its devices, attention and quantization itself; leave out "
            f"{not_vllms[0]}; vllm_options takes vLLM's own arguments"
        )


def check_devices(
    device: str, device_map: DeviceMap | None, max_memory: Fields, quantization: Quantization | None
) -> None:
    """Raise ValueError for options of a device map that do not fit together, or mean nothing."""
    if device_map is None and max_memory:
        raise ValueError("max_memory needs a device_map")
    if device_map is not None and device != "auto":
        raise ValueError("device_map chooses the devices; leave out device")
    if device_map is not None and quantization is not None:
        raise ValueError("quantization is for a model on one device; leave out device_map")
    for name, size in max_memory.items():
        if not re.fullmatch(r"cpu|[0-9]{1,4}", name):
            raise ValueError(f"max_memory of {name!r:.80}: a device is cpu or a GPU's number")
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?[KMGT]i?B", str(size)):
            raise ValueError(
                f"max_memory of {name}: {size!r:.80} is no size; write it as in {name}=20GiB"
            )
