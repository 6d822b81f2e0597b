"""Dream-v0-Instruct-7B and -Base, and any model of that format, on transformers' own Qwen2.

None of the checkpoint's code is run. Its row i - 1 predicts token i; that shift never leaves this
adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from dise_adapters.checkpoint import number, refuse_variants, special_tokens, whole
from dise_adapters.engines import Reader, open_reader
from dise_adapters.hub import config_if_any, model_folder, read_config
from dise_adapters.tokenizer import FastTokenizer
from dise_core.errors import CheckpointError
from dise_core.model import MaskPredictor, ModelInfo
from dise_core.params import EngineConfig
from dise_core.reading import Read, Reading

END_TOKENS = ("<|endoftext|>", "<|im_end|>")

MASK_TOKEN = "<|mask|>"

COVERED = {"hidden_act": ("silu",), "use_sliding_window": (False, None), "rope_scaling": (None,)}
"""The configuration fields that change the computation, and the values that Qwen2's computation
covers here.
"""

QWEN2_FIELDS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
"""The whole numbers that Dream's configuration and Qwen2's share."""


class DreamPredictor(MaskPredictor):
    """A loaded checkpoint in Dream's format."""

    @classmethod
    def claims(cls, model: str) -> bool:
        """Return whether `model` is a folder or hub id whose config.json says model_type
        "Dream".
        """
        config = config_if_any(model)
        return config is not None and str(config.get("model_type")).lower() == "dream"

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
        from transformers import Qwen2Config, Qwen2ForCausalLM

        fields = read_config(str(folder)) or {}
        qwen2 = qwen2_config(fields, folder)
        self.tokenizer = _tokenizer(folder)
        special = special_tokens(fields, self.tokenizer, END_TOKENS)
        if self.tokenizer.id_of(MASK_TOKEN) not in (None, special.mask_id):
            raise CheckpointError(
                f"{folder}/config.json: mask_token_id={special.mask_id} is not {MASK_TOKEN}, "
                "which is "
                f"{self.tokenizer.id_of(MASK_TOKEN)} in the tokenizer's files"
            )
        sizes = qwen2["vocab_size"], qwen2["max_position_embeddings"]
        self.info = ModelInfo(name, *sizes, special, tempered_confidence=True)
        self._reader = reader or open_reader(
            Qwen2ForCausalLM, folder, config, "previous", model_config=Qwen2Config(**qwen2)
        )
        self.room = self._reader.room

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Answer the reads in their order."""
        return self._reader.read(reads)


def qwen2_config(fields: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return Dream's configuration as that of a bidirectional Qwen2.

    Raises CheckpointError, naming the field and its value, for a variant that is not covered, and
    for a field that is missing, null or no number.
    """
    refuse_variants(fields, COVERED, folder)
    shared = {field: whole(fields, field, folder) for field in QWEN2_FIELDS}
    shared["num_key_value_heads"] = shared["num_attention_heads"]
    if fields.get("num_key_value_heads") is not None:
        shared["num_key_value_heads"] = whole(fields, "num_key_value_heads", folder)
    eps = number(fields, "rms_norm_eps", folder)
    rope = {"rope_type": "default", "rope_theta": float(number(fields, "rope_theta", folder))}
    tied = bool(fields.get("tie_word_embeddings", False))
    return {
        **shared,
        "rms_norm_eps": eps,
        "rope_parameters": rope,
        "tie_word_embeddings": tied,
        "is_causal": False,
        "use_sliding_window": False,
    }


def _tokenizer(folder: Path) -> FastTokenizer:
    """Return Qwen2's tokenizer with the checkpoint's own vocabulary, added tokens and chat
    template.
    """
    from transformers import Qwen2Tokenizer

    if (folder / "tokenizer.json").is_file():
        return FastTokenizer.from_folder(folder)
    for name in ("vocab.json", "merges.txt"):
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} has neither tokenizer.json nor {name}")
    return FastTokenizer(Qwen2Tokenizer.from_pretrained(folder, local_files_only=True))
