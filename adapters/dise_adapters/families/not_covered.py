"""Diffusion models that no family here supports yet, refused by name so that none is mistaken for
another.
"""

from __future__ import annotations

from dise_adapters.families.family import architectures
from dise_core.records import Fields

NOT_COVERED = {
    "NemotronLabsDiffusionModel": "Nemotron-Labs-Diffusion, whose finished text is read causally",
    "WeDLMForCausalLM": "WeDLM, diffusion with causal attention and tokens in another order",
    "ReFusionForCausalLM": "ReFusion, diffusion with causal attention over slots of tokens",
    "BD3LM": "BD3-LM, block diffusion with a backbone of its own",
    "MDLM": "MDLM, with a backbone of its own",
}
"""Unsupported models by their names in `architectures`."""

MODEL_TYPES = {
    "llada_moe_v2": "LLaDA-MoE v2, whose format is not published",
    "nemotron_labs_diffusion": NOT_COVERED["NemotronLabsDiffusionModel"],
    "wedlm": NOT_COVERED["WeDLMForCausalLM"],
    "refusion": NOT_COVERED["ReFusionForCausalLM"],
    "bd3lm": NOT_COVERED["BD3LM"],
    "mdlm": NOT_COVERED["MDLM"],
}
"""Unsupported models by their `model_type`, in lower case."""


def not_covered(fields: Fields) -> str | None:
    """Return the reason to refuse a config.json that names an unsupported model, else None."""
    names = {name.casefold(): what for name, what in NOT_COVERED.items()}
    known = [names[name.casefold()] for name in architectures(fields) if name.casefold() in names]
    known += [MODEL_TYPES[kind] for kind in [str(fields.get("model_type")).casefold()]
              if kind in MODEL_TYPES]  # fmt: skip
    return f"it is a diffusion model that is not covered: {known[0]}" if known else None
