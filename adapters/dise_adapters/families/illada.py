"""iLLaDA: LLaDA trained again from scratch, in the format of transformers' Llama."""

from dise_adapters.families.backbones import llama_settings
from dise_adapters.families.family import Family

ILLADA = Family(
    about="iLLaDA, on Llama.",
    example="GSAI-ML/iLLaDA-8B-Instruct",
    architectures=("ILLaDAForCausalLM",),
    model_types=("illada",),
    model_class="LlamaForCausalLM",
    translate=llama_settings,
    mask_tokens=("<[MASK]>",),
    mask_id=5,
)
