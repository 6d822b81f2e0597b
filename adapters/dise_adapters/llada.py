"""LLaDA-8B-Base, LLaDA-8B-Instruct and LLaDA-1.5, and any model of that format, on transformers'
own Llama.

The checkpoint's names and configuration are translated; none of its code is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from dise_adapters.checkpoint import number, refuse_variants, special_tokens, whole
from dise_adapters.engines import Reader, open_reader
from dise_adapters.hub import config_if_any, model_folder, read_config
from dise_adapters.tokenizer import FastTokenizer
from dise_core.model import MaskPredictor, ModelInfo
from dise_core.params import EngineConfig
from dise_core.reading import Read, Reading

END_TOKENS = ("<|endoftext|>", "<|eot_id|>")

KEY_MAPPING = {
    r"^model\.transformer\.wte\.": "model.embed_tokens.",
    r"^model\.transformer\.ln_f\.": "model.norm.",
    r"^model\.transformer\.ff_out\.": "lm_head.",
    r"^model\.transformer\.blocks\.(\d+)\.attn_norm\.": r"model.layers.\1.input_layernorm.",
    r"^model\.transformer\.blocks\.(\d+)\.ff_norm\.": r"model.layers.\1.post_attention_layernorm.",
    r"^model\.transformer\.blocks\.(\d+)\.(?=[qkv]_proj\.)": r"model.layers.\1.self_attn.",
    r"^model\.transformer\.blocks\.(\d+)\.attn_out\.": r"model.layers.\1.self_attn.o_proj.",
    r"^model\.transformer\.blocks\.(\d+)\.ff_proj\.": r"model.layers.\1.mlp.gate_proj.",
    r"^model\.transformer\.blocks\.(\d+)\.up_proj\.": r"model.layers.\1.mlp.up_proj.",
    r"^model\.transformer\.blocks\.(\d+)\.ff_out\.": r"model.layers.\1.mlp.down_proj.",
}
"""LLaDA's weight names, as patterns, and those of transformers' Llama."""

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
"""The configuration fields that change the computation, and the values that Llama's computation
covers.
"""


class LLaDAPredictor(MaskPredictor):
    """A loaded checkpoint in LLaDA's format."""

    @classmethod
    def claims(cls, model: str) -> bool:
        """Return whether `model` is a folder or hub id whose config.json says model_type
        "llada".
        """
        config = config_if_any(model)
        return config is not None and config.get("model_type") == "llada"

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        """Load a folder or hub id. Raises CheckpointError for variants or weights that do not fit,
        ModelError otherwise.
        """
        return cls(model_folder(model, config.revision), model, config)

    def __init__(
        self, folder: Path, name: str, config: EngineConfig, reader: Reader | None = None
    ) -> None:
        """Load the checkpoint in `folder`, to be called `name`; only its tokenizer where there is a
        reader already.
        """
        from transformers import LlamaConfig, LlamaForCausalLM

        fields = read_config(str(folder)) or {}
        llama = llama_config(fields, folder)
        self.tokenizer = FastTokenizer.from_folder(folder)
        special = special_tokens(fields, self.tokenizer, END_TOKENS)
        self.info = ModelInfo(name, llama["vocab_size"], llama["max_position_embeddings"], special)
        self._reader = reader or open_reader(
            LlamaForCausalLM,
            folder,
            config,
            "own",
            model_config=LlamaConfig(**llama),
            key_mapping=KEY_MAPPING,
        )
        self.room = self._reader.room

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Answer the reads in their order."""
        return self._reader.read(reads)


def llama_config(fields: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return LLaDA's configuration as that of a bidirectional Llama.

    Raises CheckpointError, naming the field and its value, for a variant that Llama's computation
    does not cover, and for a field that is missing, null or no number.
    """
    refuse_variants(fields, COVERED, folder)
    num_heads = whole(fields, "n_heads", folder)
    return {
        "hidden_size": whole(fields, "d_model", folder),
        "num_hidden_layers": whole(fields, "n_layers", folder),
        "num_attention_heads": num_heads,
        "num_key_value_heads": _whole_or(num_heads, fields, "n_kv_heads", folder),
        "intermediate_size": _mlp_size(fields, folder),
        "vocab_size": vocabulary(fields, folder),
        "max_position_embeddings": whole(fields, "max_sequence_length", folder),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": float(number(fields, "rope_theta", folder)),
        },
        "rms_norm_eps": number(fields, "rms_norm_eps", folder),
        "tie_word_embeddings": bool(fields.get("weight_tying", False)),
        "is_causal": False,
    }


def vocabulary(fields: Mapping[str, Any], folder: Path) -> int:
    """Return the rows of the embedding, which may be padded: embedding_size, or vocab_size where
    that is not given.
    """
    return whole(fields, "embedding_size" if fields.get("embedding_size") else "vocab_size", folder)


def _mlp_size(fields: Mapping[str, Any], folder: Path) -> int:
    """Return mlp_hidden_size, or where that is null, as LLaDA's code does, mlp_ratio (4 if not
    given) times d_model.
    """
    given = fields.get("mlp_hidden_size")
    if given is not None or not {"mlp_hidden_size", "mlp_ratio"} & set(fields):
        return whole(fields, "mlp_hidden_size", folder)
    return whole({"mlp_ratio": MLP_RATIO, **fields}, "mlp_ratio", folder) * whole(
        fields, "d_model", folder
    )


def _whole_or(default: int, fields: Mapping[str, Any], name: str, folder: Path) -> int:
    return default if fields.get(name) is None else whole(fields, name, folder)
