"""Diffusion models that no family here supports yet, refused by name so that none is mistaken for
another.
"""

from __future__ import annotations

from dise_adapters.families.family import architectures
from dise_core.records import Fields

NOT_COVERED = {
    "LLaDAMoEModelLM": "LLaDA-MoE, a mixture of experts",
    "LLaDA2MoeModelLM": "LLaDA2, block diffusion with a mixture of experts",
    "ILLaDAForCausalLM": "iLLaDA",
    "SDARForCausalLM": "SDAR, block diffusion",
    "SDARMoeForCausalLM": "SDAR, block diffusion with a mixture of experts",
    "Fast_dLLM_QwenForCausalLM": "Fast-dLLM v2, block diffusion",
    "StableDiffcoderForCausalLM": "Stable-DiffCoder, block diffusion",
    "NemotronLabsDiffusionModel": "Nemotron-Labs-Diffusion, block diffusion",
    "WeDLMForCausalLM": "WeDLM, diffusion with causal attention",
    "RND1LM": "RND1, a mixture of experts",
}
"""Unsupported models by their names in `architectures`."""

MODEL_TYPES = {
    "llada_moe_v2": "LLaDA-MoE v2, a mixture of experts",
    "llada2_moe": NOT_COVERED["LLaDA2MoeModelLM"],
    "sdar": NOT_COVERED["SDARForCausalLM"],
    "fast_dllm_qwen": NOT_COVERED["Fast_dLLM_QwenForCausalLM"],
    "nemotron_labs_diffusion": NOT_COVERED["NemotronLabsDiffusionModel"],
    "wedlm": NOT_COVERED["WeDLMForCausalLM"],
    "rnd1": NOT_COVERED["RND1LM"],
    "bd3lm": "BD3-LM, block diffusion with a backbone of its own",
    "mdlm": "MDLM, with a backbone of its own",
}
"""Unsupported models by their `model_type`, in lower case."""


def not_covered(fields: Fields) -> str | None:
    """Return the reason to refuse a config.json that names an unsupported model, else None."""
    names = {name.casefold(): what for name, what in NOT_COVERED.items()}
    known = [names[name.casefold()] for name in architectures(fields) if name.casefold() in names]
    known += [MODEL_TYPES[kind] for kind in [str(fields.get("model_type")).casefold()]
              if kind in MODEL_TYPES]  # fmt: skip
    return f"it is a diffusion model that is not covered: {known[0]}" if known else None
