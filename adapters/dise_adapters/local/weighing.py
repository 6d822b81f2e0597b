"""Weighs a checkpoint: how much it would allocate, before it does, and whether all is finite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import transformers

from dise_adapters.checkpoint.experts import check_experts
from dise_adapters.checkpoint.weights import refuse_larger, stored_weights
from dise_core.errors import CheckpointError

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint


def weigh(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError for weights that cannot be read, or cannot fill the model that the
    configuration makes. A GGUF file is both.
    """
    if checkpoint.gguf_file is None:
        stored = stored_weights(checkpoint.folder)
        settings = checkpoint.settings or {}
        for name in ("num_experts", "n_routed_experts"):
            if name in settings:
                check_experts(checkpoint.folder, stored, settings[name])
        refuse_larger(checkpoint.folder, stored, _num_elements(checkpoint))


def _num_elements(checkpoint: Checkpoint) -> int:
    """Return how many numbers the model of that configuration holds."""
    model = without_memory(checkpoint)
    return sum(part.numel() for part in (*model.parameters(), *model.buffers()))


def without_memory(checkpoint: Checkpoint) -> torch.nn.Module:
    """Return transformers' model of the checkpoint's configuration, made without room for its
    weights.
    """
    kind = getattr(transformers, checkpoint.family.model_class)
    is_auto = not hasattr(kind, "config_class")
    reads = transformers.AutoConfig if is_auto else kind.config_class
    if checkpoint.settings is not None:
        config = kind.config_class(**checkpoint.settings)
    else:
        config = reads.from_pretrained(
            checkpoint.folder, local_files_only=True, trust_remote_code=False
        )
    with torch.device("meta"):
        model: torch.nn.Module
        model = kind.from_config(config, trust_remote_code=False) if is_auto else kind(config)
    return model


@torch.inference_mode()
def refuse_not_finite(folder: object, module: torch.nn.Module, prefix: str = "") -> None:
    """Raise CheckpointError for weights with NaN or infinities: every answer would be one.

    prefix: what precedes their names in the module.
    """
    for name, weight in module.named_parameters():
        if weight.is_meta or not weight.is_floating_point() or weight.element_size() < 2:
            continue  # on the disk, or packed: a sum would mean nothing
        if not weight.sum().isfinite() and not weight.isfinite().all():
            raise CheckpointError(
                f"the checkpoint in {folder} has weights that are not finite numbers as "
                f"{str(weight.dtype).removeprefix('torch.')}: {prefix}{name}"
            )
