"""RND1: Qwen3-MoE with full attention. Row i - 1 of the logits predicts token i."""

from __future__ import annotations

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.families.backbones import qwen3_moe_settings
from dise_adapters.families.family import Family, Settings

HEAD_DIM = 128
"""RND1's head_dim where config.json has none."""


def rnd1_settings(config: ConfigJson) -> Settings:
    """Return the configuration as a Qwen3-MoE's. Raises CheckpointError, see Family.translate."""
    config.refuse_variants({"norm_topk_prob": (True,)})
    given = {"norm_topk_prob": True, "head_dim": HEAD_DIM, **config.fields}
    return qwen3_moe_settings(ConfigJson(given, config.where))


RND1 = Family(
    about="RND1, on Qwen3-MoE.",
    architectures=("RND1LM",),
    model_types=("rnd1",),
    model_class="Qwen3MoeForCausalLM",
    translate=rnd1_settings,
    end_tokens=("<|im_end|>", "<|endoftext|>"),
    answers_for="next",
    tempered_confidence="drawn",
)
