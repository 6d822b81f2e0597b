"""An independent Qwen3 with full attention in plain torch, and Tiny-A2D's files. For tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import reference_backbone
from tests.reference_backbone import Reference, Shape, common_config, shape_of
from tests.reference_dream import write_tokenizer

PAD, IM_END, MASK = 60, 62, 64
SHAPE = Shape(width=64, heads=4, kv_heads=2, hidden=96, theta=1e6, is_tied=True)


def default_config(**changes: object) -> dict[str, Any]:
    """Return a tiny model's config.json with the fields that Tiny-A2D's Qwen3 has; its name says
    that it has full attention.
    """
    config: dict[str, object] = {
        "_name_or_path": "dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1",
        "architectures": ["A2DQwen3LMHeadModel"],
        "model_type": "a2d-qwen3",
        "attention_bias": False,
        "bos_token_id": PAD,
        "eos_token_id": IM_END,
        "head_dim": 24,
        "max_window_layers": 2,
        "sliding_window": None,
        "use_sliding_window": False,
    }
    return common_config(SHAPE, **config | changes)


def write_checkpoint(folder: Path, **changes: object) -> Path:
    """Write random weights under Qwen3's names, the config.json with these changes, and a tokenizer
    that adds <|mask|>.
    """
    config = default_config(**changes)
    shape = shape_of(config, is_normed=True)
    return reference_backbone.write_checkpoint(folder, shape, config, write_tokenizer)


def module_and_tokenizer(folder: Path) -> tuple[Any, Any]:
    """Write a checkpoint, and return its module in transformers and its tokenizer."""
    from safetensors.torch import load_file
    from transformers import Qwen2Tokenizer, Qwen3Config, Qwen3ForCausalLM

    config = default_config()
    write_checkpoint(folder)
    fields = {k: v for k, v in config.items() if k not in ("architectures", "model_type")}
    module = Qwen3ForCausalLM(Qwen3Config(**fields, is_causal=False)).float()
    for layer in module.model.layers:
        layer.self_attn.is_causal = False
    module.load_state_dict(load_file(next(folder.glob("*.safetensors"))), strict=False)
    module.tie_weights()
    return module, Qwen2Tokenizer.from_pretrained(folder)


class ReferenceQwen3(Reference):
    """Qwen3, whose queries and keys are normed head by head; row i is about token i."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        super().__init__(folder, shape_of(config, is_normed=True))
