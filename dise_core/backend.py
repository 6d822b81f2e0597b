"""What runs the forward passes of a checkpoint. Users name it with the option `engine`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from dise_core.model import CacheRoom
from dise_core.params import EngineConfig
from dise_core.reading import Read, Reading

C = TypeVar("C")


class Reader(Protocol):
    """Answers Reads with a loaded model."""

    @property
    def room(self) -> CacheRoom | None:
        """Its KV cache; None for a reader without one."""
        return None

    @abstractmethod
    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Answer the reads in their order."""


class Backend(ABC, Generic[C]):
    """Opens checkpoints, each described by a C as the adapters that use this backend have them."""

    @classmethod
    @abstractmethod
    def open(cls, checkpoint: C, config: EngineConfig) -> Reader:
        """Return a reader of the checkpoint. Raises InputError for options or checkpoints that this
        backend does not take, ModelError for one that cannot be loaded.
        """
