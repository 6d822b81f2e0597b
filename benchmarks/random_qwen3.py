"""Tiny-A2D checkpoints of any size with random weights: Qwen3 that attends in blocks of 32."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from torch import Tensor

BLOCK = 32
HEAD = 64


def write(folder: Path, vocabulary: int, width: int, layers: int, max_length: int) -> Path:
    """Write a checkpoint into a folder below, whose name tells its attention, and return that; its
    last two ids are the end and the mask token.
    """
    folder = folder / "random-bd3lm"
    folder.mkdir(parents=True, exist_ok=True)
    heads = width // HEAD
    config = {
        "architectures": ["A2DQwen3LMHeadModel"], "model_type": "a2d-qwen3", "hidden_size": width,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
        "head_dim": HEAD, "intermediate_size": 3 * width, "vocab_size": vocabulary,
        "max_position_embeddings": max_length, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False,
        "mask_token_id": vocabulary - 1, "eos_token_id": vocabulary - 2,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    words = {f"t{i}": i for i in range(vocabulary)}
    Tokenizer(models.WordLevel(words, unk_token="t0")).save(str(folder / "tokenizer.json"))
    weights = _weights(vocabulary, width, layers)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _weights(vocabulary: int, width: int, layers: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def random(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator) * columns**-0.5

    weights = {
        "model.embed_tokens.weight": random(vocabulary, width),
        "lm_head.weight": 4 * random(vocabulary, width),
        "model.norm.weight": torch.ones(width),
    }
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            weights[f"{prefix}.self_attn.{name}.weight"] = random(width, width)
        for name in ("gate_proj", "up_proj"):
            weights[f"{prefix}.mlp.{name}.weight"] = random(3 * width, width)
        weights[f"{prefix}.mlp.down_proj.weight"] = random(width, 3 * width)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}.{name}.weight"] = torch.ones(width)
        for name in ("q_norm", "k_norm"):
            weights[f"{prefix}.self_attn.{name}.weight"] = torch.ones(HEAD)
    return weights
