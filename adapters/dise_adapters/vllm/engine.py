"""The engine `vllm`."""

from __future__ import annotations

from dise_adapters.families.family import Checkpoint
from dise_core.backend import Backend, Reader
from dise_core.params import EngineConfig


class VllmBackend(Backend[Checkpoint]):
    """Runs models in a vLLM engine, on one device or several."""

    @classmethod
    def open(cls, checkpoint: Checkpoint, config: EngineConfig) -> Reader:
        """Return a reader of the checkpoint. Raises InputError for a GGUF file or if vLLM is not
        installed, ModelError if it cannot start.
        """
        from dise_adapters.vllm.reader import open_vllm_reader

        return open_vllm_reader(checkpoint, config)
