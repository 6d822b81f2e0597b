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
from dise_core.lazy import lazily

if TYPE_CHECKING:
    from dise_adapters.local.in_memory import reader_of
    from dise_adapters.local.reading.answering import answer

HOMES = {
    "dise_adapters.local.in_memory": "reader_of",
    "dise_adapters.local.reading.answering": "answer",
}
"""Where what imports torch is."""

__getattr__ = lazily(__name__, HOMES)

__all__ = [
    "Checkpoint", "CheckpointPredictor", "ConfigJson", "Family", "FastTokenizer", "Safetensors",
    "Split", "Varying", "answer", "architectures", "hub", "llama_settings", "load_reader",
    "predictor_of", "qwen3_settings", "qwen_settings", "reader_of",
]  # fmt: skip
