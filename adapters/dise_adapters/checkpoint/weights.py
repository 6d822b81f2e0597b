"""What the safetensors of a checkpoint hold, by their headers: nothing is allocated before."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from dise_adapters.checkpoint.files import one_line, read_object
from dise_adapters.checkpoint.gguf import gguf_file
from dise_core import CheckpointError

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
OWN = r"[^/\\\x00]+\.safetensors"
"""A file of the checkpoint's own folder."""

SPARE = 2**24
"""Elements that a model may have beyond what its files can hold: what it lacks is told by name."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A weight in a file, as the file's header describes it."""

    path: Path
    dtype: str
    shape: tuple[int, ...]


def stored_weights(folder: Path, gguf_name: str | None = None) -> dict[str, Stored]:
    """Return the weights in a folder by name, or those in its GGUF file by transformers' names,
    from the headers. Raises CheckpointError where there are none, where the index or a header
    cannot be right, and for a weight that two files hold.
    """
    if gguf_name is not None:
        tensors = gguf_file(folder / gguf_name).tensors
        return {name: Stored(part.path, "F32", part.shape) for name, part in tensors.items()}
    weights: dict[str, Stored] = {}
    opened: Any
    for path in weight_files(folder):
        try:
            with safe_open(path, framework="np") as opened:
                for name in opened.keys():  # noqa: SIM118
                    if name in weights:
                        both = f"{weights[name].path.name} and {path.name}"
                        raise CheckpointError(f"cannot load {folder}: {both} hold {name!r:.100}")
                    part = opened.get_slice(name)
                    weights[name] = Stored(path, part.get_dtype(), tuple(part.get_shape()))
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"cannot load {path}: {one_line(error)}") from error
    return weights


def weight_files(folder: Path) -> list[Path]:
    """Return the files that are loaded: the one, or those of the index."""
    if (folder / WHOLE).is_file():
        return [folder / WHOLE]
    if not (folder / INDEX).is_file():
        problem = f"holds no weights in safetensors: neither {WHOLE} nor {INDEX}"
        raise CheckpointError(f"{folder} {problem}")
    files = read_object(folder / INDEX).get("weight_map")
    names = list(files.values()) if isinstance(files, dict) else []
    if not names or not all(isinstance(name, str) and re.fullmatch(OWN, name) for name in names):
        problem = "weight_map must give the file of each weight, *.safetensors in this folder"
        raise CheckpointError(f"cannot read {folder / INDEX}: {problem}")
    return [folder / name for name in sorted(set(names))]


def refuse_larger(folder: Path, stored: Mapping[str, Stored], num_elements: int) -> None:
    """Raise CheckpointError for a model of many more elements than its files hold, or could, packed
    at two bits each: nobody allocates those.
    """
    num_stored = sum(math.prod(weight.shape) for weight in stored.values())
    num_bytes = sum(path.stat().st_size for path in {weight.path for weight in stored.values()})
    if num_elements > SPARE + max(4 * num_bytes, 2 * num_stored):
        problem = f"cannot load {folder}: its config.json makes a model of {num_elements} weights"
        raise CheckpointError(f"{problem}, and its files hold {num_stored}")
