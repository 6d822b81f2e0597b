"""ModernBERT as a diffusion model that chats, such as dllm's ModernBERT-chat."""

from dise_adapters.families.family import Family

MODERNBERT = Family(
    about="ModernBERT that chats, on ModernBertForMaskedLM.",
    architectures=("ModernBertForMaskedLM",),
    model_class="ModernBertForMaskedLM",
    head=("head", "decoder"),
    mask_tokens=("[MASK]",),
    end_tokens=("[/Answer]", "[SEP]"),
)
