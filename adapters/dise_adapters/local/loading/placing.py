"""Where transformers puts the weights: on one device, or by accelerate's device map."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import torch
from torch import nn

from dise_adapters.local.devices import is_gpu
from dise_core import EngineConfig, InputError
from dise_core.records import Record

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def placing(config: EngineConfig, device: torch.device) -> tuple[Record, torch.device | None]:
    """Return from_pretrained's arguments for where the weights go, and the device to
    which the model is then moved; None for a model that is spread. Raises InputError for
    a device map without accelerate.

    Onto a single GPU accelerate loads weight by weight; without it the model is loaded
    into main memory and then moved. A model that is to be quantized stays there: it may
    be too large.
    """
    has_accelerate = find_spec("accelerate") is not None
    if config.quantization is not None:
        return {}, torch.device("cpu")
    if config.device_map is None:
        straight = has_accelerate and is_gpu(device)
        return {"device_map": {"": device}} if straight else {}, device
    if not has_accelerate:
        raise InputError("device_map needs accelerate: pip install accelerate", "device_map")
    options: Record = {"device_map": config.device_map}
    options["offload_folder"] = mkdtemp(prefix="dise-offload-")
    if config.max_memory:
        from accelerate.utils import convert_file_size_to_int

        options["max_memory"] = {
            int(name) if name.isdecimal() else name: convert_file_size_to_int(size)
            for name, size in config.max_memory.items()
        }
    return options, None


def spread(layers: Sequence[nn.Module], config: EngineConfig) -> None:
    """Place layers that are in main memory as a device map of that name would; their hooks move
    what goes into them. Raises as `placing` does.
    """
    options, _ = placing(config, torch.device("cpu"))
    from accelerate import dispatch_model, infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    model, unsplit = nn.ModuleList(layers), [type(layers[0]).__name__]
    memory, way = options.get("max_memory"), config.device_map
    if way != "sequential":
        is_low = way == "balanced_low_0"
        memory = get_balanced_memory(model, memory, unsplit, low_zero=is_low)
    places = infer_auto_device_map(model, memory, unsplit, clean_result=False)
    dispatch_model(model, places, offload_dir=options["offload_folder"])


def spread_over(model: PreTrainedModel) -> tuple[bool, torch.device]:
    """Return whether a device map has put the model on several devices, or on the disk,
    and the device where texts go in and answers come out.
    """
    devices = set(getattr(model, "hf_device_map", {"": model.device}).values())
    on = [torch.device(name) for name in devices if name not in ("cpu", "disk")]
    is_spread = len(devices) > 1 or "disk" in devices
    return is_spread, min(on, key=str, default=torch.device("cpu"))
