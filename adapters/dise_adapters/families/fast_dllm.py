"""Fast-dLLM v2: Qwen2 in blocks. Row i - 1 of the logits predicts token i."""

from dise_adapters.families.backbones import qwen_settings
from dise_adapters.families.blocks import Varying
from dise_adapters.families.family import Family
from dise_core import BlockCausal

FAST_DLLM = Family(
    about="Fast-dLLM v2, on Qwen2.",
    sampler="--unmasking sub-blocks",
    architectures=("Fast_dLLM_QwenForCausalLM",),
    model_types=("Fast_dLLM_Qwen",),
    model_class="Qwen2ForCausalLM",
    covered={"use_relay": (False, None)},
    translate=qwen_settings,
    mask_tokens=("|<MASK>|",),
    end_tokens=("<|im_end|>", "<|endoftext|>"),
    answers_for="next",
    attention=Varying(length_field="bd_size", otherwise=BlockCausal(32)),
    tempered_confidence="drawn",
)
