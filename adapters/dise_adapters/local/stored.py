"""The weights in a checkpoint's files, read module by module straight to a device."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from dise_adapters.checkpoint.files import one_line
from dise_adapters.local.weighing import refuse_not_finite
from dise_core.errors import ModelError


class StoredWeights:
    """Fills the modules of a model that was made without memory.

    places: the file of each of the model's weights, and its name there.
    """

    def __init__(
        self,
        folder: Path,
        places: Mapping[str, tuple[Path, str]],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._folder, self._places, self._device, self._dtype = folder, places, device, dtype

    def fill(self, module: nn.Module, name: str) -> None:
        """Put all weights of a module in their places, as the device's and the type of the model.

        name: the module's in the model. Main memory holds this module's weights and no others
        beside the model, mapped from the files that are then closed. Raises CheckpointError for
        weights that are not finite, ModelError for files that cannot be read.
        """
        give_back_freed_memory()
        wanted = [
            (*self._places[f"{name}.{own}"], own) for own, _ in list(module.named_parameters())
        ]
        try:
            for path, some in groupby(sorted(wanted), key=lambda each: each[0]):
                self._fill(module, path, [(stored, own) for _, stored, own in some])
        except Exception as error:
            raise ModelError(f"cannot load {self._folder}: {one_line(error)}") from error
        refuse_not_finite(self._folder, module, f"{name}.")

    def _fill(self, module: nn.Module, path: Path, names: list[tuple[str, str]]) -> None:
        """Fill what one file holds of a module. names: of each weight, in the file and there."""
        file: Any
        with safe_open(path, framework="pt", device=str(self._device)) as file:
            for stored, own in names:
                weight = file.get_tensor(stored).to(self._dtype, copy=True)
                place, _, last = own.rpartition(".")
                parameter = nn.Parameter(weight, requires_grad=False)
                setattr(module.get_submodule(place), last, parameter)


def give_back_freed_memory() -> None:
    """Return freed memory to the system; without glibc do nothing.

    Weights that were joined or packed leave holes between those that stay, which glibc would keep:
    after all layers, half of the model's size.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
