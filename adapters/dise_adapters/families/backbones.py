"""The configurations of transformers' Llama, Qwen2, Qwen3 and Qwen3-MoE from a
config.json with the same names of fields. Each raises CheckpointError as Family.translate
does.
"""

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.families.family import ConfigFields

COVERED = {"hidden_act": ("silu",), "use_sliding_window": (False, None), "mlp_bias": (False, None)}
"""The fields that change the computation, with the values that the classes cover."""

NO_BIAS = {"attention_bias": (False, None), "use_qkv_bias": (False, None)}
"""The same for classes whose projections have no biases here."""

SHARED = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "vocab_size", "max_position_embeddings",
)  # fmt: skip
"""The whole-number fields that these configurations share."""


def decoder_settings(config: ConfigJson, head_dim: int | None = None) -> ConfigFields:
    """Return what the configurations share. head_dim: where it is a field of its own."""
    config.refuse_variants(COVERED)
    shared = {field: config.whole(field) for field in SHARED}
    everywhere = ["full_attention"] * shared["num_hidden_layers"]
    config.refuse_variants({"layer_types": (None, [], everywhere)})
    num_heads = shared["num_attention_heads"]
    kv_heads = config.whole("num_key_value_heads", num_heads)
    config.check_heads(shared["hidden_size"], num_heads, kv_heads, head_dim)
    return {
        **shared,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": config.number("rms_norm_eps"),
        "rope_parameters": config.rope(),
        "tie_word_embeddings": config.flag("tie_word_embeddings"),
    }


def llama_settings(config: ConfigJson) -> ConfigFields:
    """Return the configuration as a Llama's."""
    config.refuse_variants(NO_BIAS | {"layer_norm_eps": (None,)})
    if config.fields.get("head_dim") is None:
        return decoder_settings(config)
    head_dim = config.whole("head_dim")
    return decoder_settings(config, head_dim) | {"head_dim": head_dim}


def qwen_settings(config: ConfigJson, head_dim: int | None = None) -> ConfigFields:
    """Return the configuration as a Qwen2's: queries, keys and values have biases."""
    return decoder_settings(config, head_dim) | {"use_sliding_window": False}


def qwen3_settings(config: ConfigJson) -> ConfigFields:
    """Return the configuration as a Qwen3's: queries and keys are normed head by head."""
    config.refuse_variants(NO_BIAS)
    head_dim = config.whole("head_dim")
    return qwen_settings(config, head_dim) | {"head_dim": head_dim}


def experts(config: ConfigJson) -> ConfigFields:
    """Return how many experts there are, and how many a token has."""
    num_experts, per_token = config.whole("num_experts"), config.whole("num_experts_per_tok")
    if per_token > num_experts:
        raise config.error(f"num_experts_per_tok={per_token} of num_experts={num_experts}")
    return {"num_experts": num_experts, "num_experts_per_tok": per_token}


def qwen3_moe_settings(config: ConfigJson) -> ConfigFields:
    """Return the configuration as a Qwen3-MoE's with experts in every layer."""
    config.refuse_variants({"mlp_only_layers": ([], None), "decoder_sparse_step": (1, None)})
    size, is_normed = config.whole("moe_intermediate_size"), config.flag("norm_topk_prob")
    return qwen3_settings(config) | experts_everywhere(config, size, is_normed)


def experts_everywhere(config: ConfigJson, size: int, is_normed: bool) -> ConfigFields:
    """Return a Qwen3-MoE's settings of experts of that size in every layer."""
    every = {"decoder_sparse_step": 1, "mlp_only_layers": []}
    return experts(config) | every | {"moe_intermediate_size": size, "norm_topk_prob": is_normed}
