"""SDAR and TraDo: Qwen3, and Qwen3-MoE for SDAR-30B-A3B, as block diffusion models."""

from __future__ import annotations

from dataclasses import replace

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.families.backbones import qwen3_moe_settings, qwen3_settings
from dise_adapters.families.blocks import Varying
from dise_adapters.families.family import Family, Settings, architectures, checkpoint_name
from dise_core.model import BlockCausal
from dise_core.records import Fields

COVERED = {"use_regular_causal": (False, None)}

LENGTHS = (4, 8, 16, 32, 64)
"""The lengths of blocks that are published: as -b8 in the name, or else 4."""


def sdar_settings(config: ConfigJson) -> Settings:
    """Return the configuration as a Qwen3's. Raises CheckpointError, see Family.translate."""
    config.refuse_variants(COVERED)
    return qwen3_settings(config)


def sdar_moe_settings(config: ConfigJson) -> Settings:
    """Return the configuration as a Qwen3-MoE's. Raises CheckpointError, see Family.translate."""
    config.refuse_variants(COVERED)
    return qwen3_moe_settings(config)


def causal_twin(fields: Fields, model: str) -> str | None:
    """Return why the checkpoint's names rule out block diffusion; None if they do not."""
    is_sdar = set(architectures(fields)) & {"SDARForCausalLM", "SDARMoeForCausalLM"}
    for name in map(checkpoint_name, (model, str(fields.get("_name_or_path") or ""))):
        if is_sdar and name.casefold().startswith("uno-"):
            return f"it is an auto-regressive verifier in SDAR's format by its name ({name})"
    return None


SDAR = Family(
    about="SDAR and TraDo, on Qwen3.",
    example="JetLM/SDAR-4B-Chat",
    architectures=("SDARForCausalLM",),
    model_types=("sdar",),
    model_class="Qwen3ForCausalLM",
    translate=sdar_settings,
    mask_tokens=("<|MASK|>",),
    end_tokens=("<|im_end|>", "<|endoftext|>"),
    attention=Varying(
        length_field="block_size",
        names={
            **{rf"-b{length}(?!\d)": BlockCausal(length) for length in LENGTHS},
            r"\b(sdar|trado)\b": BlockCausal(4),
        },
    ),
    tempered_confidence="drawn",
    obstacle=causal_twin,
)

SDAR_MOE = replace(
    SDAR,
    about="SDAR-30B-A3B, on Qwen3-MoE.",
    example="JetLM/SDAR-30B-A3B-Chat",
    architectures=("SDARMoeForCausalLM",),
    model_types=("sdar_moe",),
    model_class="Qwen3MoeForCausalLM",
    translate=sdar_moe_settings,
)
