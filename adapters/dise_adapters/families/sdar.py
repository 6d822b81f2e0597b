"""SDAR and TraDo: Qwen3, and Qwen3-MoE for SDAR-30B-A3B, as block diffusion models."""

from dataclasses import replace

from dise_adapters.families.backbones import qwen3_moe_settings, qwen3_settings
from dise_adapters.families.blocks import Varying
from dise_adapters.families.family import Family
from dise_core import BlockCausal

LENGTHS = (4, 8, 16, 32, 64)
"""The lengths of blocks that are published: as -b8 in the name, or else 4."""

SDAR = Family(
    about="SDAR and TraDo, on Qwen3.",
    sampler="--unmasking sequential, low-confidence-dynamic or entropy-bounded",
    example="JetLM/SDAR-4B-Chat",
    architectures=("SDARForCausalLM",),
    model_types=("sdar",),
    model_class="Qwen3ForCausalLM",
    covered={"use_regular_causal": (False, None)},
    translate=qwen3_settings,
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
    other_names={"^uno-": "it is an auto-regressive verifier in SDAR's format by its name ({})"},
)

SDAR_MOE = replace(
    SDAR,
    about="SDAR-30B-A3B, on Qwen3-MoE.",
    example="JetLM/SDAR-30B-A3B-Chat",
    architectures=("SDARMoeForCausalLM",),
    model_types=("sdar_moe",),
    model_class="Qwen3MoeForCausalLM",
    translate=qwen3_moe_settings,
)
