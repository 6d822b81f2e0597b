"""Which engine runs a checkpoint: transformers in this process, or vLLM."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dise_core.backend import Backend, Reader
from dise_core.params import EngineConfig
from dise_core.plugins import installed_catalog

__all__ = ["Checkpoint", "Reader", "TransformersBackend", "VllmBackend", "open_reader"]

if TYPE_CHECKING:
    from dise_adapters.reader import Alignment


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint as load_reader takes it."""

    architecture: Any
    folder: Path
    alignment: Alignment
    options: dict[str, Any] = field(default_factory=dict)


class TransformersBackend(Backend[Checkpoint]):
    """Runs models in this process, on the weights that transformers loads."""

    @classmethod
    def open(cls, checkpoint: Checkpoint, config: EngineConfig) -> Reader:
        """Return a reader of the checkpoint. Raises ModelError if it cannot be loaded."""
        from dise_adapters.loading import load_reader

        where = (checkpoint.architecture, checkpoint.folder)
        return load_reader(*where, config, checkpoint.alignment, **checkpoint.options)


class VllmBackend(Backend[Checkpoint]):
    """Runs models in a vLLM engine, on one device or several."""

    @classmethod
    def open(cls, checkpoint: Checkpoint, config: EngineConfig) -> Reader:
        """Return a reader of the checkpoint. Raises InputError without vLLM or for GGUF, ModelError
        if it cannot start.
        """
        from dise_adapters.vllm.reader import open_vllm_reader

        gguf_file = checkpoint.options.get("gguf_file")
        return open_vllm_reader(checkpoint.folder, config, checkpoint.alignment, gguf_file)


def open_reader(
    architecture: Any, folder: Path, config: EngineConfig, alignment: Alignment, **options: Any
) -> Reader:
    """Return a reader of the checkpoint in `folder` on the engine that `config` names. Arguments
    are load_reader's. Raises UnknownNameError for an engine that no plugin brings.
    """
    checkpoint = Checkpoint(architecture, folder, alignment, options)
    return installed_catalog().backend(config.engine).open(checkpoint, config)
