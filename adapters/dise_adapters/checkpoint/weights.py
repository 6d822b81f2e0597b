"""What the safetensors of a checkpoint hold, by their headers: nothing is allocated before."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dise_adapters.checkpoint.files import one_line, parse, read_object, validated
from dise_core.errors import CheckpointError
from dise_core.records import Record

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6,
    "F6_E3M2": 6, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""The types of safetensors, and how many bits an element has."""

MOST_HEADER = 100_000_000
"""The longest header in bytes: that of the safetensors library."""

SPARE = 2**24
"""Elements that a model may have beyond what its files can hold: what it lacks is told by name."""

Name = Annotated[str, Field(min_length=1, max_length=1000)]
Offset = Annotated[int, Field(ge=0, le=2**60)]


class Strict(BaseModel):
    """A part of a file, its types taken as they are."""

    model_config = ConfigDict(strict=True, frozen=True)


class Index(Strict):
    """The index of a checkpoint in several files: the file of each tensor."""

    metadata: Record
    weight_map: dict[Name, Annotated[str, Field(pattern=r"^[^/\\\x00]{1,200}\.safetensors$")]] = (
        Field(min_length=1, max_length=2**20)
    )


class Tensor(Strict):
    """A tensor in the header of a file."""

    dtype: str
    shape: Annotated[list[Offset], Field(max_length=16)]
    data_offsets: Annotated[list[Offset], Field(min_length=2, max_length=2)]


HEADER = TypeAdapter(dict[Name, Tensor])


@dataclass(frozen=True, slots=True)
class Weights:
    """How much the files of a checkpoint hold."""

    num_elements: int
    num_bytes: int


def weigh_files(folder: Path) -> Weights:
    """Return what a folder's safetensors hold.

    Raises CheckpointError where there are none, where the index or a header cannot be right, and
    where two files have one tensor.
    """
    homes: dict[str, str] = {}
    elements = 0
    paths = weight_files(folder)
    for path in paths:
        for name, tensor in _header(path).items():
            if name in homes:
                raise CheckpointError(
                    f"cannot load {folder}: {homes[name]} and {path.name} both hold {name!r:.100}"
                )
            homes[name] = path.name
            elements += math.prod(tensor.shape)
    return Weights(elements, sum(path.stat().st_size for path in paths))


def headers(folder: Path) -> dict[str, Tensor]:
    """Return type and shape of each weight in a folder by name. Raises what weigh_files raises for
    one file.
    """
    return {name: tensor for path in weight_files(folder) for name, tensor in _header(path).items()}


def homes(folder: Path) -> dict[str, Path]:
    """Return the file of each weight in a folder by name. Raises what `headers` raises."""
    return {name: path for path in weight_files(folder) for name in _header(path)}


def shapes(folder: Path) -> dict[str, list[int]]:
    """Return the shape of each weight in a folder by name. Raises what `headers` raises."""
    return {name: list(tensor.shape) for name, tensor in headers(folder).items()}


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


def _header(path: Path) -> Mapping[str, Tensor]:
    """Return the tensors of a file. Raises CheckpointError for a header that the file cannot
    have.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = struct.unpack("<Q", file.read(8))[0]
            if not 2 <= length <= min(MOST_HEADER, size - 8):
                raise ValueError(f"its header has {length} bytes and the file {size}")
            header = parse(file.read(length))
            if isinstance(header, dict):
                header.pop("__metadata__", None)
        tensors = HEADER.validate_python(header)
        _check_offsets(tensors, size - 8 - length)
        return tensors
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = ".".join(map(str, problem["loc"]))
        said = f"{name:.200}={problem['input']!r:.80}: {problem['msg']}"
        raise CheckpointError(f"cannot load {path}: in its header {one_line(said)}") from error
    except (OSError, ValueError, RecursionError, struct.error) as error:
        raise CheckpointError(f"cannot load {path}: {one_line(error)}") from error


def _check_offsets(tensors: Mapping[str, Tensor], size: int) -> None:
    """Raise ValueError unless the tensors follow one another, each as long as its shape, up to
    that many bytes.
    """
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        if tensor.dtype not in BITS:
            raise ValueError(f"{name!r:.100} has the unknown type {tensor.dtype!r:.40}")
        first, last = tensor.data_offsets
        if first != end or (last - first) * 8 != math.prod(tensor.shape) * BITS[tensor.dtype]:
            raise ValueError(
                f"{name!r:.100} of {tensor.dtype} {tensor.shape} stands at {first} to {last}, not "
                f"at {end}"
            )
        end = last
    if end != size:
        raise ValueError(f"its tensors have {end} bytes and the file has {size} for them")


def refuse_larger(folder: Path, weights: Weights, num_elements: int) -> None:
    """Raise CheckpointError for a model of many more elements than its files hold, or could, packed
    at two bits each: nobody allocates those.
    """
    if num_elements > SPARE + max(4 * weights.num_bytes, 2 * weights.num_elements):
        raise CheckpointError(
            f"cannot load {folder}: its config.json makes a model of {num_elements} weights, and "
            f"its files hold {weights.num_elements}"
        )
