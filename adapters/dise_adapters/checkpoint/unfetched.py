"""Weights that are still on the hub: what their headers tell, and the download."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dise_adapters.checkpoint.asking import asked
from dise_adapters.checkpoint.weights import Safetensors, Stored, WeightSource
from dise_core import InputError

if TYPE_CHECKING:
    from torch import Tensor, device

log = logging.getLogger(__name__)

GIB = 2**30

BLOCK = 512
"""Bytes of what a file's `st_blocks` counts."""


@dataclass(frozen=True)
class Unfetched(WeightSource):
    """The safetensors of a model on the hub. path: the folder of its other files, called
    by its commit, as the hub's cache is.
    """

    path: Path
    model: str

    @property
    def folder(self) -> Path:
        return self.path

    @property
    def hub_id(self) -> str:
        return self.model

    @cached_property
    def stored(self) -> Mapping[str, Stored]:
        """The weights by name, as the hub lists them. Raises ModelError where it does not
        answer, or has no safetensors.
        """
        return {
            name: Stored(self.path / file, part.dtype, tuple(part.shape))
            for file, header in self._headers.items()
            for name, part in header.tensors.items()
        }

    def slices(self) -> dict[str, Any]:
        return self.fetched().slices()

    def read(self, names: Iterable[str], place: device) -> Iterator[tuple[str, Tensor]]:
        return self.fetched().read(names, place)

    def fetched(self) -> Safetensors:
        """Return the weights on this machine; the log says how much is downloaded.
        Raises InputError where the disk has too little space, ModelError if the download
        fails.
        """
        from huggingface_hub import snapshot_download

        cache = self.path.parents[2]
        num_bytes, free = missing_bytes(self.path, self._sizes), shutil.disk_usage(cache).free
        if num_bytes > free:
            raise InputError(
                f"The weights of {self.model} that are not here yet take {num_bytes / GIB:.1f} "
                f"GiB, and {free / GIB:.1f} GiB are free on the disk of {cache}. Free some, "
                "or name a folder on another disk as HF_HOME.",
                "model",
            )
        log.warning(
            "Downloading %.1f GiB of weights of %s; %.1f GiB are free on the disk of %s.",
            num_bytes / GIB,
            self.model,
            free / GIB,
            cache,
        )
        files = {"revision": self.path.name, "allow_patterns": [*self._headers]}
        asked(self.model, partial(snapshot_download, self.model, **files))
        return Safetensors(self.path)

    @property
    def _sizes(self) -> dict[str, int]:
        """The bytes of each file, as far as weights fill it."""
        return {
            file: max((part.data_offsets[1] for part in header.tensors.values()), default=0)
            for file, header in self._headers.items()
        }

    @cached_property
    def _headers(self) -> Mapping[str, Any]:
        from huggingface_hub import HfApi

        ask = HfApi().get_safetensors_metadata
        answer = asked(self.model, partial(ask, self.model, revision=self.path.name))
        return answer.files_metadata


def missing_bytes(folder: Path, sizes: Mapping[str, int]) -> int:
    """Return how much of these files the disk lacks; of some the download may have begun.
    folder: a snapshot in the hub's cache.
    """
    missing = sum(size for name, size in sizes.items() if not (folder / name).is_file())
    for begun in (folder.parents[1] / "blobs").glob("*.incomplete"):
        with suppress(FileNotFoundError):  # another process has got it all
            missing -= begun.stat().st_blocks * BLOCK
    return max(0, missing)
