"""The built-in adapters, which load models and answer Reads. torch is imported only when
a model is loaded.

The names exported here are public, for authors of adapters; docs/reference lists them.
"""

from typing import TYPE_CHECKING

from dise_adapters.checkpoint import hub
from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.checkpoint.weights import Safetensors
from dise_adapters.families.backbones import llama_settings, qwen3_settings, qwen_settings
from dise_adapters.families.blocks import Varying
from dise_adapters.families.family import Checkpoint, Family, Split
from dise_adapters.families.names import architectures
from dise_adapters.predictor import CheckpointPredictor, load_reader, predictor_of

if TYPE_CHECKING:
    from dise_adapters.local.in_memory import reader_of
    from dise_adapters.local.reading.answering import answer

__all__ = [
    "Checkpoint", "CheckpointPredictor", "ConfigJson", "Family", "FastTokenizer", "Safetensors",
    "Split", "Varying", "answer", "architectures", "hub", "llama_settings", "load_reader",
    "predictor_of", "qwen3_settings", "qwen_settings", "reader_of",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Return what imports torch when it is first asked for."""
    if name == "answer":
        from dise_adapters.local.reading.answering import answer

        return answer
    if name == "reader_of":
        from dise_adapters.local.in_memory import reader_of

        return reader_of
    raise AttributeError(f"module 'dise_adapters' has no attribute {name!r}")
