"""The engines that run checkpoints: transformers in this process, or vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dise_adapters.families.family import Family, Settings
from dise_core.backend import Backend, Reader
from dise_core.params import EngineConfig


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What an engine opens.

    folder: with config.json and weights in safetensors, or the GGUF file of that name. settings:
    the fields of the model class's configuration; None where transformers reads config.json.
    """

    family: Family
    folder: Path
    settings: Settings | None = None
    gguf_file: str | None = None


class TransformersBackend(Backend[Checkpoint]):
    """Runs models in this process, on the weights that transformers loads."""

    @classmethod
    def open(cls, checkpoint: Checkpoint, config: EngineConfig) -> Reader:
        """Return a reader of the checkpoint. Raises ModelError if it cannot be loaded."""
        from dise_adapters.local.loading import load_reader

        return load_reader(checkpoint, config)


class VllmBackend(Backend[Checkpoint]):
    """Runs models in a vLLM engine, on one device or several."""

    @classmethod
    def open(cls, checkpoint: Checkpoint, config: EngineConfig) -> Reader:
        """Return a reader of the checkpoint. Raises InputError without vLLM or for GGUF, ModelError
        if it cannot start.
        """
        from dise_adapters.vllm.reader import open_vllm_reader

        return open_vllm_reader(checkpoint, config)
