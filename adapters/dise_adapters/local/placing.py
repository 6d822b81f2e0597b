"""Where transformers puts a model's weights: on one device, or by accelerate's device map."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from importlib.util import find_spec
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from dise_adapters.local.devices import is_gpu
from dise_core.errors import InputError
from dise_core.params import EngineConfig
from dise_core.records import Record

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Placement:
    """How from_pretrained is told where to put the weights, and what remains to be done then.

    options: its arguments. device: where the model is to go; None for a model that is spread.
    offload: the folder for weights that fit in no memory, which is there as long as the model.
    """

    options: Record
    device: torch.device | None = None
    offload: str | None = None

    def placed(self, model: PreTrainedModel) -> PreTrainedModel:
        if self.device is not None:
            return model.to(self.device)
        if self.offload is not None:
            weakref.finalize(model, rmtree, self.offload, ignore_errors=True)
        return model


def placing(config: EngineConfig, device: torch.device) -> Placement:
    """Return the placement that the options ask for. Raises InputError for a device map without
    accelerate.

    Onto a single GPU accelerate loads weight by weight; without it the model is loaded into main
    memory and then moved. A model that is to be quantized stays there: it may be too large.
    """
    has_accelerate = find_spec("accelerate") is not None
    if config.quantization is not None:
        return Placement({}, torch.device("cpu"))
    if config.device_map is None:
        straight = has_accelerate and is_gpu(device)
        return Placement({"device_map": {"": device}} if straight else {}, device)
    if not has_accelerate:
        raise InputError("device_map needs accelerate: pip install accelerate", "device_map")
    offload = mkdtemp(prefix="dise-offload-")
    options: Record = {"device_map": config.device_map, "offload_folder": offload}
    if config.max_memory:
        options["max_memory"] = _sizes(config.max_memory)
    return Placement(options, offload=offload)


def _sizes(max_memory: Record) -> dict[int | str, int]:
    """Return the bytes of each device, a GPU by its number."""
    from accelerate.utils import convert_file_size_to_int

    return {
        int(name) if name.isdecimal() else name: convert_file_size_to_int(size)
        for name, size in max_memory.items()
    }


def spread_over(model: PreTrainedModel) -> tuple[bool, torch.device]:
    """Return whether a device map has put the model on several devices, or on the disk, and the
    device where texts go in and answers come out.
    """
    found = set(getattr(model, "hf_device_map", {"": model.device}).values())
    on = [torch.device(each) for each in found if each not in ("cpu", "disk")]
    is_spread = len(found) > 1 or "disk" in found
    return is_spread, min(on, key=str, default=torch.device("cpu"))


class OnDevice(nn.Module):
    """A part of a model whose output is wanted on a device that may not be its own."""

    def __init__(self, part: nn.Module, device: torch.device) -> None:
        super().__init__()
        self._part, self._device = part, device

    def forward(self, states: Tensor) -> Tensor:
        result: Tensor = self._part(states).to(self._device)
        return result
