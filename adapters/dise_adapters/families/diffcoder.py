"""Stable-DiffCoder: Llama as a block diffusion model. Its config.json says model_type
llama, and in older revisions LlamaForCausalLM: it must never be taken for an
auto-regressive model.
"""

from dise_adapters.families.backbones import llama_settings
from dise_adapters.families.family import Family
from dise_adapters.families.names import architectures, remote_classes
from dise_core import BlockCausal
from dise_core.records import JsonFields


def names_diffcoder(fields: JsonFields, model: str) -> bool:  # noqa: ARG001
    """Return whether a class that config.json names is a DiffCoder."""
    names = (*architectures(fields), *remote_classes(fields))
    return any("diffcoder" in name.casefold() for name in names)


DIFFCODER = Family(
    about="Stable-DiffCoder, on Llama.",
    sampler="--unmasking threshold --unmasking-setting threshold=0.95",
    example="ByteDance-Seed/Stable-DiffCoder-8B-Instruct",
    architectures=("StableDiffcoderForCausalLM",),
    model_class="LlamaForCausalLM",
    translate=llama_settings,
    mask_tokens=("<[MASK_TOKEN]>",),
    mask_id=5,
    attention=BlockCausal(4),
    last_block="alone",
    recognizes=names_diffcoder,
)
