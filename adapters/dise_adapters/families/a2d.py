"""Tiny-A2D: Qwen3 turned into a diffusion model with full attention (dllm's `mdlm`).

Its block-diffusion variants (`bd3lm`) have the same config.json and differ only in their names.
"""

from __future__ import annotations

from pathlib import PurePath

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.families.dream import qwen_settings
from dise_adapters.families.family import Family, Settings
from dise_core.records import Fields


def qwen3_settings(config: ConfigJson) -> Settings:
    """Return the configuration as a Qwen3's. Raises CheckpointError, see Family.translate."""
    config.refuse_variants({"attention_bias": (False,)})
    head_dim = config.whole("head_dim")
    return qwen_settings(config, head_dim) | {"head_dim": head_dim}


def block_diffusion(fields: Fields, model: str) -> str | None:
    """Return why the checkpoint's names rule out full attention; None if they do not."""
    for name in (PurePath(model).name, str(fields.get("_name_or_path") or "")):
        if "bd3lm" in name.casefold():
            return f"it is a block-diffusion model by its name ({name}), which is not covered"
    return None


A2D_QWEN3 = Family(
    about="Tiny-A2D's Qwen3 with full attention (mdlm).",
    architectures=("A2DQwen3LMHeadModel",),
    model_types=("a2d-qwen3",),
    model_class="Qwen3ForCausalLM",
    translate=qwen3_settings,
    mask_tokens=("<|mask|>",),
    end_tokens=("<|endoftext|>", "<|im_end|>"),
    obstacle=block_diffusion,
)
