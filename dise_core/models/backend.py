"""Backends, which run a checkpoint's forward passes. The option `engine` chooses one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from dise_core.errors import InputError
from dise_core.models.attention import BIDIRECTIONAL, Attention
from dise_core.models.info import AnswersFor
from dise_core.models.predictor import Ability, CacheRoom, MaskPredictor
from dise_core.params.base import Params
from dise_core.params.engine import EngineConfig
from dise_core.plans.reading import Read, Reading

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


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModule:
    """A module that is in memory, its tokenizer, and what they may not tell: see
    LLM.from_model.
    """

    module: object
    tokenizer: object
    mask_id: int | None = None
    max_length: int | None = None
    answers_for: AnswersFor = "own"
    attention: Attention = BIDIRECTIONAL


class Backend(ABC, Generic[C]):
    """Opens checkpoints described by a C, which this backend's adapters provide."""

    options: ClassVar[type[Params]] = Params
    """The backend's own options. Users give them beside those of EngineConfig."""

    @classmethod
    def check(cls, config: EngineConfig) -> None:
        """Raise InputError, before it loads, for options that it does not take."""
        cls.options_of(config)

    @classmethod
    def options_of(cls, config: EngineConfig) -> Params:
        """Return the engine options that belong to this backend alone."""
        fields = cls.options.model_fields
        return cls.options(**{name: value for name, value in config.own.items() if name in fields})

    @classmethod
    def fitted(cls, wanted: Sequence[tuple[C, EngineConfig]]) -> Sequence[EngineConfig]:
        """Return the options with which checkpoints fit into the memory that is free, all
        together, where the given ones leave a choice. Reads no weights. Raises InputError
        where none fit.
        """
        return [config for _, config in wanted]

    @classmethod
    def dtype_of(cls, config: EngineConfig) -> str:
        """Return the type that it computes in with these options, as far as they tell."""
        return config.dtype

    @classmethod
    def hold(cls, loaded: LoadedModule) -> MaskPredictor:
        """Return the model that a module in memory is. Raises InputError for one that it
        does not run.
        """
        raise InputError(
            f"{cls.__name__} runs no {type(loaded.module).__name__} that is in memory; "
            "leave out engine=.",
            "engine",
        )

    @classmethod
    @abstractmethod
    def open(cls, checkpoint: C, config: EngineConfig) -> Reader:
        """Return a reader of the checkpoint. Raises InputError for an option or a
        checkpoint that this backend does not support, ModelError for one that cannot be
        loaded.
        """


Backends = Mapping[str, type[Backend[Any]]]
"""Backends by the name that the option `engine` takes."""
