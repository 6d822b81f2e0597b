"""The weights of a checkpoint by name. Heads are read once, before anything else."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from dise_adapters.checkpoint.files import read_object, refused
from dise_core import CheckpointError
from dise_core.files import opened_file

if TYPE_CHECKING:
    from torch import Tensor, device

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_HEAD = 2**23
"""Of a file, in bytes: a weight takes about a hundred."""

OWN = r"[^/\\\x00]+\.safetensors"
"""A file of the checkpoint's own folder."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A weight in a file. dtype: safetensors' name; "packed" for a type of GGUF's."""

    path: Path
    dtype: str
    shape: tuple[int, ...]


class WeightSource(ABC):
    """Where a checkpoint's weights are read from. path: the folder or file to load."""

    path: Path

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Where tokenizer and configuration are looked for."""

    @property
    @abstractmethod
    def stored(self) -> Mapping[str, Stored]:
        """The weights by name. Raises CheckpointError where a head cannot be right."""

    @property
    def hub_id(self) -> str | None:
        """The model on the hub whose weights they are; None once they are here."""
        return None

    def fetched(self) -> WeightSource:
        """Return the weights on this machine, downloaded first where they are not."""
        return self

    @abstractmethod
    def slices(self) -> dict[str, Any]:
        """Return for each weight what reads it when indexed, as transformers takes it."""

    @abstractmethod
    def read(self, names: Iterable[str], place: device) -> Iterator[tuple[str, Tensor]]:
        """Yield weights by name, on that device where the format allows it, in the order
        of their files, each mapped meanwhile.
        """


@dataclass(frozen=True)
class Safetensors(WeightSource):
    """The safetensors of a folder: one file, or those of its index."""

    path: Path

    @property
    def folder(self) -> Path:
        return self.path

    @property
    def is_here(self) -> bool:
        """Whether the folder has all of them. Raises CheckpointError for a bad index."""
        has_any = (self.path / SINGLE).is_file() or (self.path / INDEX).is_file()
        return has_any and all(path.is_file() for path in self._files)

    @cached_property
    def stored(self) -> Mapping[str, Stored]:
        """The weights by name. Raises CheckpointError where there are none, where the
        index or a header cannot be right, and for a weight that two files hold.
        """
        weights: dict[str, Stored] = {}
        opened: Any
        for path in self._files:
            _check_head(path)
            with refused(f"cannot load {path}"), safe_open(path, framework="np") as opened:
                for name in opened.keys():  # noqa: SIM118
                    if name in weights:
                        raise CheckpointError(
                            f"cannot load {self.path}: {weights[name].path.name} and "
                            f"{path.name} hold {name!r:.100}"
                        )
                    part = opened.get_slice(name)
                    weights[name] = Stored(path, part.get_dtype(), tuple(part.get_shape()))
        return weights

    def slices(self) -> dict[str, Any]:
        files: dict[Path, Any] = {path: safe_open(path, framework="pt") for path in self._files}
        return {name: files[part.path].get_slice(name) for name, part in self.stored.items()}

    def read(self, names: Iterable[str], place: device) -> Iterator[tuple[str, Tensor]]:
        wanted = set(names)
        file: Any
        for path in sorted({self.stored[name].path for name in wanted}):
            with safe_open(path, framework="pt", device=str(place)) as file:
                for name in filter(wanted.__contains__, file.offset_keys()):
                    yield name, file.get_tensor(name)

    @cached_property
    def _files(self) -> list[Path]:
        single, index = self.path / SINGLE, self.path / INDEX
        if single.is_file():
            return [single]
        if not index.is_file():
            raise CheckpointError(
                f"{self.path} holds no weights in safetensors: neither {SINGLE} nor {INDEX}"
            )
        files = read_object(index).get("weight_map")
        names = list(files.values()) if isinstance(files, dict) else []
        if not names or not all(isinstance(n, str) and re.fullmatch(OWN, n) for n in names):
            raise CheckpointError(
                f"cannot read {index}: weight_map must give the file of each weight, "
                "*.safetensors in this folder"
            )
        return [self.path / name for name in sorted(set(names))]


def _check_head(path: Path) -> None:
    """Raise CheckpointError, before it is read, for a head that is too long."""
    with refused(f"cannot load {path}"), opened_file(path) as file:
        size = int.from_bytes(file.read(8), "little")
    if size > MAX_HEAD:
        raise CheckpointError(
            f"cannot load {path}: its header of {size:,} bytes is longer than {MAX_HEAD:,}, which "
            "is enough for 60,000 weights; save them in several files, with less metadata"
        )
