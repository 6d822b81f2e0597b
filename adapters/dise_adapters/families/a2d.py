"""Tiny-A2D: Qwen3 and Qwen2 turned into diffusion models, with full attention (dllm's
`mdlm`) or in blocks (`bd3lm`). Their config.json are the same: the names of the
checkpoints tell them apart, or the user does.
"""

from dataclasses import replace

from dise_adapters.families.backbones import qwen3_settings, qwen_settings
from dise_adapters.families.blocks import Varying
from dise_adapters.families.family import Family
from dise_core.models.attention import BIDIRECTIONAL, BlockCausal

A2D_QWEN3 = Family(
    about="Tiny-A2D's Qwen3 (mdlm, bd3lm).",
    example="dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1",
    architectures=("A2DQwen3LMHeadModel",),
    model_types=("a2d-qwen3",),
    model_class="Qwen3ForCausalLM",
    translate=qwen3_settings,
    mask_tokens=("<|mask|>",),
    end_tokens=("<|endoftext|>", "<|im_end|>"),
    attention=Varying(names={"bd3lm": BlockCausal(32), "mdlm": BIDIRECTIONAL}),
    last_block="alone",
)

A2D_QWEN2 = replace(
    A2D_QWEN3,
    about="Tiny-A2D's Qwen2.5 (mdlm, bd3lm).",
    example="",
    architectures=("A2DQwen2LMHeadModel",),
    model_types=("a2d-qwen2",),
    model_class="Qwen2ForCausalLM",
    translate=qwen_settings,
)
