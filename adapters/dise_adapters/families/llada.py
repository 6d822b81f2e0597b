"""LLaDA-8B-Base, LLaDA-8B-Instruct, LLaDA-1.5, and any model of that format."""

from __future__ import annotations

from dise_adapters.checkpoint.config import (
    check_heads,
    flag,
    number,
    refuse_variants,
    rope,
    whole,
    whole_or,
)
from dise_adapters.families.family import Family, Settings
from dise_core.records import Fields

BLOCK = r"^model\.transformer\.blocks\.(\d+)\."
LAYER = r"model.layers.\1."

MLP_RATIO = 4
"""The default of LLaDA's mlp_ratio."""

COVERED = {
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
}
"""The configuration fields that change the computation, with the values that Llama's class covers.
"""


def llama_settings(fields: Fields, where: str) -> Settings:
    """Return LLaDA's configuration as a Llama's. Raises CheckpointError, see Family.translate."""
    refuse_variants(fields, COVERED, where)
    num_heads = whole(fields, "n_heads", where)
    # The embedding may have more rows than the vocabulary has tokens.
    rows = "embedding_size" if fields.get("embedding_size") else "vocab_size"
    hidden, kv_heads = (
        whole(fields, "d_model", where),
        whole_or(num_heads, fields, "n_kv_heads", where),
    )
    check_heads(hidden, num_heads, kv_heads, None, where)
    return {
        "hidden_size": hidden,
        "num_hidden_layers": whole(fields, "n_layers", where),
        "num_attention_heads": num_heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": _mlp_size(fields, where),
        "vocab_size": whole(fields, rows, where),
        "max_position_embeddings": whole(fields, "max_sequence_length", where),
        "rope_parameters": rope(fields, where),
        "rms_norm_eps": number(fields, "rms_norm_eps", where),
        "tie_word_embeddings": flag(fields, "weight_tying", where),
    }


def _mlp_size(fields: Fields, where: str) -> int:
    """Return mlp_hidden_size; if null, mlp_ratio (4 if not given) times d_model, as LLaDA's code
    does.
    """
    given = fields.get("mlp_hidden_size")
    if given is not None or not {"mlp_hidden_size", "mlp_ratio"} & set(fields):
        return whole(fields, "mlp_hidden_size", where)
    ratio = whole({"mlp_ratio": MLP_RATIO, **fields}, "mlp_ratio", where)
    return ratio * whole(fields, "d_model", where)


LLADA = Family(
    about="LLaDA's format, on transformers' Llama.",
    architectures=("LLaDAModelLM",),
    model_types=("llada",),
    model_class="LlamaForCausalLM",
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
