"""LLaDA2.0 and LLaDA2.1: block diffusion with experts, on transformers' Glm4-MoE."""

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.families.backbones import NO_BIAS, decoder_settings, experts
from dise_adapters.families.blocks import Varying
from dise_adapters.families.family import ConfigFields, Family, Split
from dise_core import BlockCausal

GROUP_TOP = 2
"""The experts of a group whose scores decide whether the group is chosen."""


def llada2_settings(config: ConfigJson) -> ConfigFields:
    """Return the configuration as a Glm4-MoE's. Raises as Family.translate says."""
    head_dim = config.whole("head_dim")
    settings = decoder_settings(config, head_dim)
    return {
        **settings,
        **_routing(config),
        "head_dim": head_dim,
        "use_qk_norm": True,
        "rope_parameters": settings["rope_parameters"]
        | {"partial_rotary_factor": _rotary_share(config, head_dim)},
        "moe_intermediate_size": config.whole("moe_intermediate_size"),
        "n_shared_experts": config.whole("num_shared_experts"),
        "first_k_dense_replace": config.count("first_k_dense_replace"),
        "num_nextn_predict_layers": 0,
    }


def _routing(config: ConfigJson) -> ConfigFields:
    """Return how a token's experts are chosen: the best of the best groups."""
    sizes = experts(config)
    num_experts, per_token = sizes["num_experts"], sizes["num_experts_per_tok"]
    groups, top_groups = config.whole("n_group"), config.whole("topk_group")
    if num_experts % groups or top_groups > groups or num_experts // groups < GROUP_TOP:
        raise config.error(f"n_group={groups} and topk_group={top_groups} of {num_experts} experts")
    if per_token > top_groups * (num_experts // groups):
        raise config.error(f"num_experts_per_tok={per_token} of {top_groups} groups")
    return {
        "n_routed_experts": num_experts,
        "num_experts_per_tok": per_token,
        "n_group": groups,
        "topk_group": top_groups,
        "routed_scaling_factor": config.number("routed_scaling_factor"),
        "norm_topk_prob": per_token > 1,
    }


def _rotary_share(config: ConfigJson, head_dim: int) -> float:
    """Return the rotated share of a head. Raises CheckpointError unless it is even."""
    share = config.number("partial_rotary_factor")
    size = int(head_dim * share)
    if share > 1 or size < 2 or size % 2:
        raise config.error(f"partial_rotary_factor={share} of head_dim={head_dim} is not covered")
    config.refuse_variants({"rotary_dim": (size, None)})
    return share


def _rows(settings: ConfigFields) -> tuple[int, ...]:
    heads, kv_heads = settings["num_attention_heads"], settings["num_key_value_heads"]
    return tuple(count * settings["head_dim"] for count in (heads, kv_heads, kv_heads))


LLADA2 = Family(
    about="LLaDA2.0 and LLaDA2.1, on Glm4-MoE.",
    sampler="--unmasking low-confidence-dynamic --unmasking-setting threshold=0.95, of "
    "LLaDA2.1 --unmasking llada2-editing",
    example="inclusionAI/LLaDA2.0-mini",
    trained_on="masks alone, LLaDA2.1 on edits too",
    architectures=("LLaDA2MoeModelLM",),
    model_types=("llada2_moe",),
    model_class="Glm4MoeForCausalLM",
    covered={
        **NO_BIAS,
        "use_bias": (False,),
        "use_qk_norm": (True,),
        "use_rmsnorm": (True, None),
        "norm_head": (False, None),
        "norm_softmax": (False, None),
        "norm_topk_prob": (True, None),
        "score_function": ("sigmoid", None),
        "router_dtype": ("fp32", "float32", None),
        "moe_router_enable_expert_bias": (True, None),
        "num_nextn_predict_layers": (0, None),
        "expert_capacity": (None,),
    },
    translate=llada2_settings,
    key_mapping={
        r"^model\.word_embeddings\.": "model.embed_tokens.",
        r"\.attention\.dense\.": ".self_attn.o_proj.",
        r"\.attention\.query_layernorm\.": ".self_attn.q_norm.",
        r"\.attention\.key_layernorm\.": ".self_attn.k_norm.",
        r"\.mlp\.gate\.expert_bias$": ".mlp.gate.e_score_correction_bias",
    },
    split=Split(
        r"\.attention\.query_key_value\.",
        tuple(f".self_attn.{name}_proj." for name in ("q", "k", "v")),
        _rows,
    ),
    mask_tokens=("<|mask|>",),
    end_tokens=("<|endoftext|>", "<|role_end|>"),
    attention=Varying(length_field="block_size", otherwise=BlockCausal(32)),
    tempered_confidence="drawn",
    other_names={
        r"llada2\.2": "LLaDA2.2 ({}) deletes and splits tokens as it writes, which is not covered"
    },
)
