"""An independent Qwen3 with full attention in plain torch, and Tiny-A2D's files. For tests."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.reference_dream import ReferenceDream, write_tokenizer

PAD, IM_END, MASK = 60, 62, 64


def default_config(**changes: object) -> dict[str, object]:
    """Return a tiny model's config.json with the fields that Tiny-A2D's Qwen3 has; its name says
    that it has full attention.
    """
    config: dict[str, object] = {
        "_name_or_path": "dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1",
        "architectures": ["A2DQwen3LMHeadModel"],
        "model_type": "a2d-qwen3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": PAD,
        "eos_token_id": IM_END,
        "head_dim": 24,
        "hidden_act": "silu",
        "hidden_size": 64,
        "initializer_range": 0.02,
        "intermediate_size": 96,
        "max_position_embeddings": 96,
        "max_window_layers": 2,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "use_cache": False,
        "use_sliding_window": False,
        "vocab_size": 70,
    }
    return config | changes


def write_checkpoint(folder: Path, config: dict[str, object], seed: int = 0) -> Path:
    """Write random weights under Qwen3's names, and a tokenizer that adds <|mask|>."""
    generator = torch.Generator().manual_seed(seed)
    names = ("hidden_size", "intermediate_size", "vocab_size", "head_dim")
    d, hidden, rows, size = (int(str(config[name])) for name in names)
    heads, kv_heads = (int(str(config[f"num_{kind}_heads"])) for kind in ("attention", "key_value"))

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    weights = {"model.embed_tokens.weight": random(rows, d) / 4, "model.norm.weight": 1 + random(d)}
    for layer in range(int(str(config["num_hidden_layers"]))):
        prefix = f"model.layers.{layer}"
        shapes = {
            "self_attn.q_proj": (heads * size, d), "self_attn.k_proj": (kv_heads * size, d),
            "self_attn.v_proj": (kv_heads * size, d), "self_attn.o_proj": (d, heads * size),
            "mlp.gate_proj": (hidden, d), "mlp.up_proj": (hidden, d), "mlp.down_proj": (d, hidden),
        }  # fmt: skip
        for name, shape in shapes.items():
            weights[f"{prefix}.{name}.weight"] = random(*shape) / math.sqrt(shape[1])
        for name, width in (("input_layernorm", d), ("post_attention_layernorm", d),
                            ("self_attn.q_norm", size), ("self_attn.k_norm", size)):  # fmt: skip
            weights[f"{prefix}.{name}.weight"] = 1 + 0.3 * random(width)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    return folder


class ReferenceQwen3(ReferenceDream):
    """Qwen3 written out: one sequence at a time; queries and keys are normed head by head."""

    def logits(self, ids: list[int]) -> Tensor:
        """Return logits [N, V]; row i is about token i."""
        return self.rows(ids)

    def _attention(self, x: Tensor, block: dict[str, Tensor]) -> Tensor:
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        size = self.config["head_dim"]
        q, k, v = (x @ block[f"self_attn.{name}_proj.weight"].T for name in ("q", "k", "v"))
        mixed = []
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            shared = slice(head * kv_heads // heads * size, (head * kv_heads // heads + 1) * size)
            query = self._rotate(self._norm(q[:, own], block["self_attn.q_norm.weight"]))
            key = self._rotate(self._norm(k[:, shared], block["self_attn.k_norm.weight"]))
            mixed.append(torch.softmax(query @ key.T / math.sqrt(size), -1) @ v[:, shared])
        return torch.cat(mixed, dim=-1) @ block["self_attn.o_proj.weight"].T
