"""LLaDA-MoE-7B-A1B: LLaDA as a mixture of experts, on transformers' Qwen3-MoE."""

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.families.backbones import NO_BIAS, experts_everywhere, qwen_settings
from dise_adapters.families.family import ConfigFields, Family


def llada_moe_settings(config: ConfigJson) -> ConfigFields:
    """Return the configuration as a Qwen3-MoE's. Raises as Family.translate says."""
    config.refuse_variants({"moe_layer_freq": (1, [1] * config.whole("num_hidden_layers"))})
    size = config.whole("expert_intermediate_size")
    fields = {**config.fields, "intermediate_size": size}
    settings = qwen_settings(ConfigJson(fields, config.where))
    head_dim = settings["hidden_size"] // settings["num_attention_heads"]
    return settings | experts_everywhere(config, size, is_normed=False) | {"head_dim": head_dim}


LLADA_MOE = Family(
    about="LLaDA-MoE, on Qwen3-MoE.",
    example="inclusionAI/LLaDA-MoE-7B-A1B-Instruct",
    architectures=("LLaDAMoEModelLM", "LLaDAMoEModel"),
    model_types=("llada_moe",),
    model_class="Qwen3MoeForCausalLM",
    covered={
        **NO_BIAS,
        "qk_layernorm": (True,),
        "clip_qkv": (None,),
        "norm_topk_prob": (None, False),
        "moe_router_score_function": ("softmax",),
        "moe_router_enable_expert_bias": (False,),
        "router_num_group": (None,),
        "router_topk_group": (None,),
        "routed_scaling_factor": (None, 1),
        "shared_expert_intermediate_size": (None,),
        "partial_rotary_factor": (1, None),
    },
    translate=llada_moe_settings,
    mask_tokens=("<|mask|>",),
    end_tokens=("<|endoftext|>", "<|role_end|>"),
)
