"""What the safetensors of a checkpoint hold, by their headers: nothing is allocated before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError, safe_open

from dise_adapters.checkpoint.files import one_line, read_object, validated
from dise_core.errors import CheckpointError
from dise_core.records import Record

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"

SPARE = 2**24
"""Elements that a model may have beyond what its files can hold: what it lacks is told by name."""


class Index(BaseModel):
    """The index of a checkpoint in several files: the file of each tensor."""

    model_config = ConfigDict(strict=True, frozen=True)
    metadata: Record
    weight_map: dict[str, Annotated[str, Field(pattern=r"^[^/\\\x00]{1,200}\.safetensors$")]] = (
        Field(min_length=1)
    )


@dataclass(frozen=True, slots=True)
class Stored:
    """A weight in a file, as the file's header describes it."""

    path: Path
    dtype: str
    shape: tuple[int, ...]


def stored_weights(folder: Path) -> dict[str, Stored]:
    """Return the weights in a folder by name, from the headers of its files.

    Raises CheckpointError where there are none, where the index or a header cannot be right, and
    where two files have one weight.
    """
    found: dict[str, Stored] = {}
    for path in weight_files(folder):
        for name, stored in _header(path).items():
            if name in found:
                raise CheckpointError(
                    f"cannot load {folder}: {found[name].path.name} and {path.name} both hold "
                    f"{name!r:.100}"
                )
            found[name] = stored
    return found


def weight_files(folder: Path) -> list[Path]:
    """Return the files that are loaded: the one, or those of the index."""
    if not list(folder.glob("*.safetensors")):
        raise CheckpointError(f"{folder} holds no weights in safetensors (*.safetensors)")
    if (folder / WHOLE).is_file():
        return [folder / WHOLE]
    if not (folder / INDEX).is_file():
        raise CheckpointError(f"{folder} holds neither {WHOLE} nor {INDEX}")
    index = validated(Index, read_object(folder / INDEX), folder / INDEX)
    paths = [folder / name for name in sorted(set(index.weight_map.values()))]
    for path in paths:
        if not path.is_file():
            raise CheckpointError(f"cannot load {folder}: {INDEX} names {path.name}, not there")
    return paths


def _header(path: Path) -> dict[str, Stored]:
    file: Any
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: Stored(path, weight.get_dtype(), tuple(weight.get_shape()))
                for name, weight in slices.items()
            }
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot load {path}: {one_line(error)}") from error


def refuse_larger(folder: Path, stored: Mapping[str, Stored], num_elements: int) -> None:
    """Raise CheckpointError for a model of many more elements than its files hold, or could, packed
    at two bits each: nobody allocates those.
    """
    num_stored = sum(math.prod(weight.shape) for weight in stored.values())
    num_bytes = sum(path.stat().st_size for path in {weight.path for weight in stored.values()})
    if num_elements > SPARE + max(4 * num_bytes, 2 * num_stored):
        raise CheckpointError(
            f"cannot load {folder}: its config.json makes a model of {num_elements} weights, and "
            f"its files hold {num_stored}"
        )
