"""Fast-dLLM v2: Qwen2 as a block diffusion model. Row i - 1 of the logits predicts token i."""

from __future__ import annotations

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.families.backbones import qwen_settings
from dise_adapters.families.blocks import Varying
from dise_adapters.families.family import Family, Settings
from dise_core.model import BlockCausal


def fast_dllm_settings(config: ConfigJson) -> Settings:
    """Return the configuration as a Qwen2's. Raises CheckpointError, see Family.translate."""
    config.refuse_variants({"use_relay": (False, None)})
    return qwen_settings(config)


FAST_DLLM = Family(
    about="Fast-dLLM v2, on Qwen2.",
    architectures=("Fast_dLLM_QwenForCausalLM",),
    model_types=("Fast_dLLM_Qwen",),
    model_class="Qwen2ForCausalLM",
    translate=fast_dllm_settings,
    mask_tokens=("|<MASK>|",),
    end_tokens=("<|im_end|>", "<|endoftext|>"),
    answers_for="next",
    attention=Varying(length_field="bd_size", otherwise=BlockCausal(32)),
    tempered_confidence="drawn",
)
