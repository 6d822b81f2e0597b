"""LLaDA checkpoints with random weights, of any size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models


def write(folder: Path, vocabulary: int, width: int, layers: int, max_length: int) -> Path:
    """Write a checkpoint; its last two ids are the end and the mask token."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "llada", "d_model": width, "n_layers": layers, "n_heads": width // 64,
        "mlp_hidden_size": 3 * width,
        "vocab_size": vocabulary, "embedding_size": vocabulary, "max_sequence_length": max_length,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5, "mask_token_id": vocabulary - 1, "eos_token_id": vocabulary - 2,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    Tokenizer(models.WordLevel({f"t{i}": i for i in range(vocabulary)}, unk_token="t0")).save(
        str(folder / "tokenizer.json")
    )
    save_file(
        _weights(vocabulary, width, layers), folder / "model.safetensors", metadata={"format": "pt"}
    )
    return folder


def _weights(vocabulary: int, width: int, layers: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    scale = width**-0.5
    shapes = {
        "q_proj": (width, width),
        "k_proj": (width, width),
        "v_proj": (width, width),
        "attn_out": (width, width),
    }
    shapes |= {
        "ff_proj": (3 * width, width),
        "up_proj": (3 * width, width),
        "ff_out": (width, 3 * width),
    }
    weights = {"model.transformer.ln_f.weight": torch.ones(width)}
    for name in ("wte", "ff_out"):
        weights[f"model.transformer.{name}.weight"] = (
            torch.randn(vocabulary, width, generator=generator) * scale
        )
    for layer in range(layers):
        prefix = f"model.transformer.blocks.{layer}"
        weights |= {
            f"{prefix}.{n}.weight": torch.randn(s, generator=generator) * scale
            for n, s in shapes.items()
        }
        weights |= {
            f"{prefix}.{name}.weight": torch.ones(width) for name in ("attn_norm", "ff_norm")
        }
    return weights
