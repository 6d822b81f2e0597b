"""LLaDA-8B-Base, LLaDA-8B-Instruct, LLaDA-1.5, and any model of that format."""

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.families.family import ConfigFields, Family

BLOCK = r"^model\.transformer\.blocks\.(\d+)\."
LAYER = r"model.layers.\1."

MLP_RATIO = 4
"""The default of LLaDA's mlp_ratio."""


def llama_settings(config: ConfigJson) -> ConfigFields:
    """Return the configuration as a Llama's. Raises as Family.translate says."""
    num_heads, hidden = config.whole("n_heads"), config.whole("d_model")
    kv_heads = config.whole("n_kv_heads", num_heads)
    config.check_heads(hidden, num_heads, kv_heads, None)
    # The embedding may have more rows than the vocabulary has tokens.
    rows = "embedding_size" if config.fields.get("embedding_size") else "vocab_size"
    return {
        "hidden_size": hidden,
        "num_hidden_layers": config.whole("n_layers"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": _mlp_size(config),
        "vocab_size": config.whole(rows),
        "max_position_embeddings": config.whole("max_sequence_length"),
        "rope_parameters": config.rope(),
        "rms_norm_eps": config.number("rms_norm_eps"),
        "tie_word_embeddings": config.flag("weight_tying"),
    }


def _mlp_size(config: ConfigJson) -> int:
    """Return mlp_hidden_size; if null, mlp_ratio times d_model, as LLaDA's code does."""
    is_given = config.fields.get("mlp_hidden_size") is not None
    if is_given or not {"mlp_hidden_size", "mlp_ratio"} & set(config.fields):
        return config.whole("mlp_hidden_size")
    # A ratio that is there and null is an error, as in LLaDA's code.
    ratio = config.whole("mlp_ratio") if "mlp_ratio" in config.fields else MLP_RATIO
    return ratio * config.whole("d_model")


LLADA = Family(
    about="LLaDA's format, on transformers' Llama.",
    example="GSAI-ML/LLaDA-8B-Instruct",
    architectures=("LLaDAModelLM",),
    model_types=("llada",),
    model_class="LlamaForCausalLM",
    covered={
        "block_type": ("llama",),
        "activation_type": ("silu",),
        "layer_norm_type": ("rms",),
        "rope": (True,),
        "alibi": (False,),
        "include_bias": (False,),
        "include_qkv_bias": (False, None),
        "bias_for_layer_norm": (False, None),
        "attention_layer_norm": (False,),
        "scale_logits": (False,),
        "input_emb_norm": (False,),
        "multi_query_attention": (False, None),
        "block_group_size": (1,),
        "clip_qkv": (None,),
    },
    translate=llama_settings,
    key_mapping={
        r"^model\.transformer\.wte\.": "model.embed_tokens.",
        r"^model\.transformer\.ln_f\.": "model.norm.",
        r"^model\.transformer\.ff_out\.": "lm_head.",
        rf"{BLOCK}attn_norm\.": f"{LAYER}input_layernorm.",
        rf"{BLOCK}ff_norm\.": f"{LAYER}post_attention_layernorm.",
        rf"{BLOCK}(?=[qkv]_proj\.)": f"{LAYER}self_attn.",
        rf"{BLOCK}attn_out\.": f"{LAYER}self_attn.o_proj.",
        rf"{BLOCK}ff_proj\.": f"{LAYER}mlp.gate_proj.",
        rf"{BLOCK}up_proj\.": f"{LAYER}mlp.up_proj.",
        rf"{BLOCK}ff_out\.": f"{LAYER}mlp.down_proj.",
    },
    mask_tokens=("<|mdm_mask|>",),
    end_tokens=("<|endoftext|>", "<|eot_id|>"),
)
