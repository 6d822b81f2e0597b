"""Which engine runs a checkpoint: transformers in this process, or vLLM."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dise_core.model import CacheRoom
from dise_core.params import EngineConfig
from dise_core.reading import Read, Reading

if TYPE_CHECKING:
    from dise_adapters.reader import Alignment


class Reader(Protocol):
    """Answers Reads with a loaded model."""

    @property
    def room(self) -> CacheRoom | None:
        """Where it keeps keys and values; None keeps none."""
        return None

    @abstractmethod
    def read(self, reads: Sequence[Read]) -> list[Reading]:
        """Answer the reads in their order."""


def open_reader(
    architecture: Any, folder: Path, config: EngineConfig, alignment: Alignment, **options: Any
) -> Reader:
    """Return a reader of the checkpoint in `folder` on the engine that `config` names. Arguments
    are load_reader's.
    """
    if config.engine == "vllm":
        from dise_adapters.vllm.reader import open_vllm_reader

        return open_vllm_reader(folder, config, alignment, options.get("gguf_file"))
    from dise_adapters.loading import load_reader

    return load_reader(architecture, folder, config, alignment, **options)
