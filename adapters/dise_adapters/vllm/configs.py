"""LLaDA's and Dream's config.json as configurations of transformers, so that vLLM reads them
without remote code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import LlamaConfig, Qwen2Config

from dise_adapters.dream import qwen2_config
from dise_adapters.llada import llama_config


class LLaDAConfig(LlamaConfig):  # type: ignore[no-untyped-call]
    """LLaDA's fields as those of a bidirectional Llama. Refuses variants that Llama's computation
    does not cover.
    """

    model_type = "llada"

    def __init__(self, **fields: Any) -> None:
        """Translate the fields of config.json; with none, as transformers asks for its own
        comparison, Llama's defaults.
        """
        translated = llama_config(fields, Path("the model")) if "d_model" in fields else {}
        super().__init__(**{**fields, **translated})


class DreamConfig(Qwen2Config):  # type: ignore[no-untyped-call]
    """Dream's fields as those of a bidirectional Qwen2."""

    model_type = "Dream"

    def __init__(self, **fields: Any) -> None:
        """Translate the fields of config.json, as LLaDAConfig."""
        translated = (
            qwen2_config(fields, Path("the model"))
            if "hidden_size" in fields and "rope_theta" in fields
            else {}
        )
        super().__init__(**{**fields, **translated})
