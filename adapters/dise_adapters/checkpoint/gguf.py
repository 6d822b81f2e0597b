"""What a GGUF file says of its model, by its header: read with bounds, before anything else reads
it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dise_adapters.checkpoint.config import MOST
from dise_adapters.checkpoint.files import one_line
from dise_core.errors import CheckpointError
from dise_core.records import Record

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}  # fmt: skip
STRING, ARRAY = 8, 9

MOST_KEYS, MOST_TENSORS, MOST_ITEMS, MOST_STRING = 2**12, 2**17, 2**22, 2**22

SIZES = {
    "block_count": MOST["layers"], "expert_count": MOST["experts"], "head_count": MOST["heads"],
    "head_count_kv": MOST["heads"], "context_length": MOST["max_position_embeddings"],
    "vocab_size": MOST["vocab_size"], "embedding_length": 2**20, "feed_forward_length": 2**20,
    "expert_feed_forward_length": 2**20, "key_length": 4096, "value_length": 4096,
    "alignment": 2**16,
}  # fmt: skip
"""The largest values of keys, by the last words of their names."""

FIELDS = {"context_length": "max_position_embeddings", "eos_token_id": "eos_token_id"}
"""What a config.json calls a key, by the last words of its name."""

EMBEDDING = "token_embd.weight"
"""The tensor whose last dimension is the vocabulary's."""


def gguf_fields(path: Path) -> Record:
    """Return what a config.json would say of the model in a GGUF file: vocab_size,
    max_position_embeddings and eos_token_id, as far as it tells. Raises CheckpointError for a
    header that the file cannot have.
    """
    try:
        with path.open("rb") as file:
            header = _Header(file, path.stat().st_size)
            return header.fields()
    except (OSError, ValueError, struct.error) as error:
        raise CheckpointError(f"cannot load {path}: {one_line(error)}") from error


@dataclass(slots=True)
class _Header:
    """A file that is read from its beginning, no further than its end."""

    file: BinaryIO
    size: int

    def fields(self) -> Record:
        magic, version, num_tensors, num_keys = struct.unpack("<4sIQQ", self._bytes(24))
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"it begins with {magic!r} and version {version}, not GGUF and 2 or 3")
        if num_tensors > MOST_TENSORS or num_keys > MOST_KEYS:
            raise ValueError(f"its header counts {num_tensors} tensors and {num_keys} keys")
        alignment, sizes = 32, dict[str, int]()
        for _ in range(num_keys):
            name = self._string()
            value = self._value(self._number("I"))
            if name == "general.alignment" and isinstance(value, int):
                alignment = value
            _check(name, value)
            if isinstance(value, int):
                sizes[name] = value
        if alignment < 1:
            raise ValueError("general.alignment is 0")
        shapes = self._shapes(num_tensors, alignment, sizes)
        keys = {name.rpartition(".")[2]: value for name, value in sizes.items()}
        found = {field: keys[key] for key, field in FIELDS.items() if key in keys}
        return found | ({"vocab_size": shapes[EMBEDDING][-1]} if shapes.get(EMBEDDING) else {})

    def _shapes(
        self, num_tensors: int, alignment: int, given: Mapping[str, int]
    ) -> Mapping[str, tuple[int, ...]]:
        """Return the tensors' shapes. Raises ValueError for one that ends beyond the file, and for
        sizes that the tensors do not have.
        """
        shapes = [self._tensor() for _ in range(num_tensors)]
        largest = max((max(shape, default=1) for _, _, shape, _ in shapes), default=0)
        for key, most in ((".block_count", num_tensors), (".embedding_length", largest)):
            for name in (name for name in given if name.endswith(key) and given[name] > most):
                raise ValueError(f"{name:.80}={given[name]}, and its tensors allow {most}")
        start = -(-self.file.tell() // alignment) * alignment
        sizes = _sizes()
        for name, kind, shape, offset in shapes:
            if sizes and kind not in sizes:
                raise ValueError(f"tensor {name!r:.80} has the unknown type {kind}")
            block, num_bytes = sizes.get(kind, (1, 0))
            if start + offset + math.prod(shape) // block * num_bytes > self.size:
                raise ValueError(f"tensor {name!r:.80} of shape {shape} ends beyond the file")
        return {name: shape for name, _, shape, _ in shapes}

    def _tensor(self) -> tuple[str, int, tuple[int, ...], int]:
        name, num_dims = self._string(), self._number("I")
        if num_dims > 8:
            raise ValueError(f"tensor {name!r:.80} has {num_dims} dimensions")
        shape = struct.unpack(f"<{num_dims}Q", self._bytes(8 * num_dims))
        return name, self._number("I"), shape, self._number("Q")

    def _value(self, kind: int) -> object:
        """Return a number; a text or a list, passed over, is None."""
        if kind in SCALARS:
            found: object = self._number(SCALARS[kind])
            return found
        if kind == STRING:
            self._string()
        elif kind == ARRAY:
            self._array(self._number("I"), self._number("Q"))
        else:
            raise ValueError(f"its header has a value of the unknown type {kind}")
        return None

    def _array(self, kind: int, length: int) -> None:
        if length > MOST_ITEMS or kind == ARRAY:
            raise ValueError(f"its header has a list of {length} values of type {kind}")
        if kind in SCALARS:
            self._bytes(length * struct.calcsize("<" + SCALARS[kind]))
        else:
            for _ in range(length):
                self._value(kind)

    def _number(self, code: str) -> int:
        number: int = struct.unpack("<" + code, self._bytes(struct.calcsize("<" + code)))[0]
        return number

    def _string(self) -> str:
        length = self._number("Q")
        if length > MOST_STRING:
            raise ValueError(f"its header has a text of {length} bytes")
        return self._bytes(length).decode("utf-8", "replace")

    def _bytes(self, count: int) -> bytes:
        found = self.file.read(count) if count <= self.size else b""
        if len(found) < count:
            raise ValueError("its header goes on beyond the file")
        return found


def _check(name: str, value: object) -> None:
    """Raise ValueError for a size beyond those of any model."""
    most = SIZES.get(name.rpartition(".")[2])
    if most is not None and isinstance(value, int | float) and not 0 <= value <= most:
        raise ValueError(f"{name:.80}={value} must be from 0 to {most}")


def _sizes() -> Mapping[int, tuple[int, int]]:
    """Return the elements of a block, and its bytes, by the number of a type; none without the
    library that reads the weights.
    """
    try:
        from gguf import GGML_QUANT_SIZES
    except ImportError:
        return {}
    return {int(kind): size for kind, size in GGML_QUANT_SIZES.items()}
