"""Weighs a checkpoint before it allocates, and checks that its weights are finite."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dise_adapters.local.loading.quiet import quiet
from dise_core import CheckpointError

if TYPE_CHECKING:
    from dise_adapters.checkpoint.weights import WeightSource
    from dise_adapters.families.family import Checkpoint

SPARE = 2**24
"""Elements that a model may have beyond its files: what is lacking is told by name."""


def weigh(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError for weights that cannot be read, and for a model of many more
    elements than its files hold, or could, packed at two bits each: nobody allocates
    those.
    """
    folder, stored = checkpoint.folder, checkpoint.weights.stored.values()
    if checkpoint.is_gguf and checkpoint.settings is None:
        return  # its file is its configuration too
    model_class, config = configured(checkpoint)
    is_auto = not hasattr(model_class, "config_class")
    make = partial(model_class.from_config, trust_remote_code=False) if is_auto else model_class
    with torch.device("meta"):
        model = make(config)
    num_elements = sum(part.numel() for part in (*model.parameters(), *model.buffers()))
    num_stored = sum(math.prod(weight.shape) for weight in stored)
    num_bytes = sum(path.stat().st_size for path in {weight.path for weight in stored})
    if num_elements > SPARE + max(4 * num_bytes, 2 * num_stored):
        raise CheckpointError(
            f"cannot load {folder}: its config.json makes a model of {num_elements} weights, and "
            f"its files hold {num_stored}"
        )


def read_by_transformers(weights: WeightSource) -> Any:
    """Return transformers' configuration of a folder or of a GGUF file."""
    from transformers import AutoConfig

    file = weights.path.name if weights.path != weights.folder else None
    with quiet():
        return AutoConfig.from_pretrained(
            weights.folder, gguf_file=file, local_files_only=True, trust_remote_code=False
        )


def configured(checkpoint: Checkpoint) -> tuple[Any, Any]:
    """Return transformers' class of the checkpoint's model, and its configuration."""
    import transformers

    model_class: Any = getattr(transformers, checkpoint.family.model_class)
    if checkpoint.settings is not None:
        return model_class, model_class.config_class(**checkpoint.settings)
    config = checkpoint.config or read_by_transformers(checkpoint.weights)
    return model_class, config


@torch.inference_mode()
def refuse_not_finite(folder: object, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Raise CheckpointError for NaN or infinite weights: every answer would be one."""
    for name, weight in weights:
        if weight.is_meta or not weight.is_floating_point() or weight.element_size() < 2:
            continue  # on the disk, or packed: a sum would mean nothing
        if not weight.sum().isfinite() and not weight.isfinite().all():
            raise CheckpointError(
                f"the checkpoint in {folder} has weights that are not finite numbers as "
                f"{str(weight.dtype).removeprefix('torch.')}: {name}"
            )
