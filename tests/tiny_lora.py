"""LoRA adapters as peft writes them, and their merge written out. Only tests use it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.reference_backbone import edited

RANK, ALPHA = 3, 12.0

WRITTEN: dict[str, object] = {
    "peft_type": "LORA", "peft_version": "0.21.2", "base_model_name_or_path": None, "r": RANK,
    "lora_alpha": ALPHA, "alpha_pattern": {}, "rank_pattern": {}, "bias": "none",
    "fan_in_fan_out": False, "init_lora_weights": True, "use_rslora": False, "use_dora": False,
    "target_modules": ["q_proj"], "megatron_core": "megatron.core", "qalora_group_size": 16,
    "loftq_config": {}, "inference_mode": True, "layer_replication": None, "task_type": None,
}  # fmt: skip
"""What adapter_config.json holds."""


def write(folder: Path, tensors: Mapping[str, Tensor], **fields: object) -> Path:
    """Write an adapter of these tensors, by their names without peft's prefix."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(WRITTEN | fields))
    named = {f"base_model.model.{name}": part.contiguous() for name, part in tensors.items()}
    save_file(named, folder / "adapter_model.safetensors")
    return folder


def eighths(*shape: int, seed: int = 0) -> Tensor:
    """Return random multiples of 1/8, whose products and sums are exact in float32."""
    numbers = np.random.default_rng([seed, *shape]).integers(-4, 5, shape) / 8
    return torch.from_numpy(numbers.astype(np.float32))


def pair(module: str, out: int, into: int, rank: int = RANK, seed: int = 0) -> dict[str, Tensor]:
    """Return the matrices of a linear layer."""
    up, down = eighths(out, rank, seed=seed + 1), eighths(rank, into, seed=seed)
    return {f"{module}.lora_A.weight": down, f"{module}.lora_B.weight": up}


def exact(folder: Path) -> dict[str, Tensor]:
    """Round a checkpoint's weights to multiples of 2^-12, so that sums with an adapter's
    are exact, and return them.
    """
    with edited(folder) as weights:
        for name, part in weights.items():
            weights[name] = (part.double() * 4096).round().float() / 4096
    return weights


def linear(weights: Mapping[str, Tensor]) -> list[str]:
    """Return the modules with a matrix that stand in the layers."""
    names = (name for name, part in weights.items() if part.ndim == 2)
    return sorted(n.removesuffix(".weight") for n in names if re.search(r"\.\d+\.", n))


def merged(folder: Path, weights: Mapping[str, Tensor], path: Path) -> Path:
    """Copy a checkpoint to a folder of the same name below `path`, with these weights."""
    shutil.copytree(folder, path / folder.name)
    with edited(path / folder.name) as changed:
        changed.update(weights)
    return path / folder.name


def product(up: Tensor, down: Tensor, scale: float = ALPHA / RANK) -> Tensor:
    """Return scale * up @ down, summed number by number."""
    terms = up.double()[:, :, None] * down.double()[None]
    return (terms.sum(1) * scale).float()
