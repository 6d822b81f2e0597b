"""Weighs a checkpoint: how much it would allocate, before it does, and whether all is finite."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dise_adapters.checkpoint.weights import refuse_larger, stored_weights
from dise_core import CheckpointError

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint


def weigh(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError for weights that cannot be read, or cannot fill the model that the
    configuration makes. A GGUF file that transformers reads is both.
    """
    if checkpoint.gguf_file is None or checkpoint.settings is not None:
        stored = stored_weights(checkpoint.folder, checkpoint.gguf_file)
        model = without_memory(checkpoint)
        num_elements = sum(part.numel() for part in (*model.parameters(), *model.buffers()))
        refuse_larger(checkpoint.folder, stored, num_elements)


def configured(checkpoint: Checkpoint) -> tuple[Any, Any]:
    """Return transformers' class of the checkpoint's model, and its configuration."""
    import transformers

    model_class = getattr(transformers, checkpoint.family.model_class)
    if checkpoint.settings is not None:
        return model_class, model_class.config_class(**checkpoint.settings)
    options = {"local_files_only": True, "trust_remote_code": False}
    file = checkpoint.gguf_file
    config = transformers.AutoConfig.from_pretrained(checkpoint.folder, gguf_file=file, **options)
    return model_class, config


def without_memory(checkpoint: Checkpoint) -> torch.nn.Module:
    """Return transformers' model of the checkpoint's configuration, without room for weights."""
    model_class, config = configured(checkpoint)
    is_auto = not hasattr(model_class, "config_class")
    make = partial(model_class.from_config, trust_remote_code=False) if is_auto else model_class
    with torch.device("meta"):
        model: torch.nn.Module = make(config)
    return model


@torch.inference_mode()
def refuse_not_finite(folder: object, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Raise CheckpointError for weights with NaN or infinities: every answer would be one."""
    for name, weight in weights:
        if weight.is_meta or not weight.is_floating_point() or weight.element_size() < 2:
            continue  # on the disk, or packed: a sum would mean nothing
        if not weight.sum().isfinite() and not weight.isfinite().all():
            raise CheckpointError(
                f"the checkpoint in {folder} has weights that are not finite numbers as "
                f"{str(weight.dtype).removeprefix('torch.')}: {name}"
            )
