"""RND1: Qwen3-MoE with full attention. Row i - 1 of the logits predicts token i."""

from dise_adapters.families.backbones import qwen3_moe_settings
from dise_adapters.families.family import Family

RND1 = Family(
    about="RND1, on Qwen3-MoE.",
    architectures=("RND1LM",),
    model_types=("rnd1",),
    model_class="Qwen3MoeForCausalLM",
    defaults={"norm_topk_prob": True, "head_dim": 128},
    covered={"norm_topk_prob": (True,)},
    translate=qwen3_moe_settings,
    end_tokens=("<|im_end|>", "<|endoftext|>"),
    answers_for="next",
    tempered_confidence="drawn",
)
