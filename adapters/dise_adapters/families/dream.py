"""Dream-v0-Instruct-7B and -Base, DiffuCoder, Dream-Coder, and any model of that format.

Row i - 1 of the logits predicts token i; the engines hide that shift.
"""

from __future__ import annotations

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.families.family import Family, Settings

COVERED = {"hidden_act": ("silu",), "use_sliding_window": (False, None), "rope_scaling": (None,)}
"""The configuration fields that change the computation, with the values that Qwen's class covers.
"""

SHARED = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
"""The whole-number fields that the configurations of Dream, Qwen2 and Qwen3 share."""


def qwen_settings(config: ConfigJson, head_dim: int | None = None) -> Settings:
    """Return a configuration with Qwen's field names as a Qwen's; head_dim: where it is its own.
    Raises CheckpointError, see Family.translate.
    """
    config.refuse_variants(COVERED)
    shared = {field: config.whole(field) for field in SHARED}
    num_heads = shared["num_attention_heads"]
    kv_heads = config.whole("num_key_value_heads", num_heads)
    config.check_heads(shared["hidden_size"], num_heads, kv_heads, head_dim)
    return {
        **shared,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": config.number("rms_norm_eps"),
        "rope_parameters": config.rope(),
        "tie_word_embeddings": config.flag("tie_word_embeddings"),
        "use_sliding_window": False,
    }


DREAM = Family(
    about="Dream's format, on transformers' Qwen2: Dream, DiffuCoder, Dream-Coder.",
    architectures=("DreamModel",),
    model_types=("Dream",),
    model_class="Qwen2ForCausalLM",
    translate=qwen_settings,
    mask_tokens=("<|mask|>",),
    end_tokens=("<|endoftext|>", "<|im_end|>"),
    answers_for="next",
    tempered_confidence=True,
)
