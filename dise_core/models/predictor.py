"""The interface of a loaded model, which answers Reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from dise_core.errors import InputError
from dise_core.plans.reading import CacheHint, Read, Reading
from dise_core.plans.readouts import READOUTS, Readout

if TYPE_CHECKING:
    from dise_core.params.engine import Dtype, EngineConfig
from dise_core.models.info import ModelInfo
from dise_core.models.tokenizer import Tokenizer


class CacheRoom(Protocol):
    """A predictor's KV cache, for the engine. Texts that do not fit wait."""

    @property
    def num_free(self) -> int:
        """The number of tokens for which there is room."""

    def missing(self, hint: CacheHint, length: int) -> int:
        """Return how many more tokens of room a text needs; 0 for one that never fits."""

    def counted(self, hint: CacheHint, length: int) -> int:
        """Return how many tokens of a batch a text takes: all, or fewer where a pass runs
        a window of it.
        """


Ability = Literal["two-stream", "shadow"]
"""A kind of Read that not every predictor answers: one with context_ids; one of shadows."""


ReportShare = Callable[[float], None]
"""Is called with the share of a model's weights that is read, 0 to 1."""

Shown = Callable[[str], AbstractContextManager[ReportShare]]
"""Makes, of a model's name, the context in which its weights are loaded."""


def unshown(_: str) -> AbstractContextManager[ReportShare]:
    """Show nothing."""
    return nullcontext(unreported)


def unreported(_: float) -> None:
    """Tell nobody."""


class MaskPredictor(ABC):
    """A model that answers Reads."""

    info: ModelInfo

    tokenizer: Tokenizer

    checked_on: ClassVar[str] = ""
    """The weights that this adapter was checked on, as `dise models` shows it."""

    example: ClassVar[str] = ""
    """How users name a model of this adapter: by a hub id, a folder, an address."""

    trained_on: ClassVar[str] = ""
    """What its models were trained on, as `dise models` shows it: "masks alone", "masks
    and edits", "finished texts too", "random tokens" or "next tokens"; empty where that
    is not known."""

    sampler: ClassVar[str] = ""
    """The options of its models' published sampler, as `dise models` shows them; empty
    where that is the default or not known."""

    heeds: ClassVar[frozenset[str] | None] = None
    """The options of EngineConfig, and of engines, that `load` heeds; another that is set
    is refused by name before. None: all. How many rows run at once, the judge's options,
    `adapter` and `calibration` are not an adapter's to heed."""

    merges_lora: ClassVar[bool] = False
    """Whether `load` merges EngineConfig.lora into the weights, and names it in info."""

    readouts: ClassVar[frozenset[type[Readout]]] = READOUTS
    """The readouts that it answers. The engine refuses the others before a pass."""

    abilities: frozenset[Ability] = frozenset()
    """What it answers beyond plain Reads. The engine refuses the rest by name."""

    calibration_files: Sequence[PathLike[str]] = ()
    """The calibrations that come with the model, files by `dise calibrate`. Where the
    user names none, the first that holds for an answer tells how likely it is right."""

    room: CacheRoom | None = None
    """Its KV cache, which Reads with a cache hint may fill; None without one."""

    @classmethod
    @abstractmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:
        """Return whether this adapter can load the model (a name, folder or hub id);
        False for an unknown one. revision: of a hub id, None for its main branch.

        Reads no weights, and fetches nothing but config.json from the hub.
        """

    @classmethod
    def explain(cls, model: str, revision: str | None = None) -> str | None:  # noqa: ARG003
        """Return one sentence about a model that no adapter claims, or None if there is
        none.

        Raises InputError or ModelError if it cannot find out: the hub does not answer,
        say.
        """
        return None

    @classmethod
    @abstractmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        """Return the model. Its weights may wait for `load_weights`, or for the first
        read, so that requests are checked before. `config.catalog` has the engines and
        the other adapters. Raises ModelError with a one-line message saying what to do.
        """

    def fit(self, beside: Sequence[MaskPredictor] = ()) -> Dtype | None:  # noqa: ARG002
        """Make sure that the weights of this model, and of those beside it, fit into the
        memory that is free, before any is read. Return the type of 16 bits that this
        model gets because dtype "auto" is too large in float32; None where it need not be
        narrowed.

        Raises InputError where nothing that the options allow fits.
        """
        return None

    def load_weights(self, shown: Shown = unshown) -> None:  # noqa: B027
        """Load weights that are not loaded. shown: shows it. Raises as `load`."""

    def update_weights(self, weights: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Copy tensors over the weights of those names, and forget what is kept of texts.
        Raises InputError, before any is changed, for a name or a shape that the model
        lacks, and for a model whose weights cannot be replaced.
        """
        raise InputError(
            f"{self.info.name!r:.80} takes no new weights: they are integers, from a "
            "GGUF file, on several devices or in another process. Load the model again.",
            "named",
        )

    @abstractmethod
    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Return the answers in the order of the reads; a read gets the same answer in
        any batch.

        The engine has checked that token ids are in [0, vocab_size) and no row exceeds
        max_length.
        """
