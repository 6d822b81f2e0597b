"""Backends, which run a checkpoint's forward passes. The option `engine` chooses one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from dise_core.model import Ability, CacheRoom
from dise_core.params import EngineConfig
from dise_core.reading import Read, Reading

C = TypeVar("C")


class Reader(Protocol):
    """Answers Reads with a loaded model."""

    @property
    def room(self) -> CacheRoom | None:
        """Its KV cache; None for a reader without one."""
        return None

    @property
    def abilities(self) -> frozenset[Ability]:
        """What it answers beyond plain Reads: see MaskPredictor."""
        return frozenset()

    @abstractmethod
    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Answer the reads in their order."""


class Backend(ABC, Generic[C]):
    """Opens checkpoints described by a C, the type that the adapters of this backend provide."""

    @classmethod
    @abstractmethod
    def open(cls, checkpoint: C, config: EngineConfig) -> Reader:
        """Return a reader of the checkpoint. Raises InputError for an option or a checkpoint that
        this backend does not support, ModelError for one that cannot be loaded.
        """


Backends = Mapping[str, type[Backend[Any]]]
"""Backends by the name that the option `engine` takes. A backend and its adapters agree on the
type of their checkpoints.
"""
