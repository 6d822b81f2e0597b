"""Reads config.json field by field and refuses unsupported values by name."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dise_adapters.checkpoint.files import one_line
from dise_core.errors import CheckpointError
from dise_core.records import Fields, Record

MOST = {
    "layers": 1024, "layer": 1024, "attention_types": 1024, "heads": 4096, "head": 4096,
    "experts": 4096, "head_dim": 4096, "mlp_ratio": 64, "vocab_size": 2**21,
    "embedding_size": 2**21, "rms_norm_eps": 1, "rope_theta": 1e12, "max_sequence_length": 2**24,
    "max_position_embeddings": 2**24,
}  # fmt: skip
"""The largest values of fields, by their names or the last words of those: several times those of
any published model.
"""

MOST_SIZE = 2**20
"""The largest value of any other field that a family reads."""

MOST_IDS = 1000
"""Token ids in one field."""

MOST_NUMBER = 2**40
"""The largest value of a field that only transformers reads."""


@dataclass(frozen=True, slots=True)
class ConfigJson:
    """The fields of a config.json, read one by one. Each method raises CheckpointError, which names
    the field, for a value that is not what it returns.

    where: the checkpoint, for errors.
    """

    fields: Fields
    where: str

    def refuse_variants(self, covered: Mapping[str, Sequence[object]]) -> None:
        """Raise CheckpointError, naming the field and its value, unless each field is absent or has
        one of its covered values.
        """
        for field, values in covered.items():
            value = self.fields.get(field, values[0])
            if value not in values:
                allowed = " or ".join(map(repr, values))
                raise self.error(f"{field}={value!r:.80} is not covered, only {allowed}")

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number above 0; a default stands for a field that is missing or null."""
        if default is not None and self.fields.get(name) is None:
            return default
        value = self.number(name)
        if value != int(value):
            raise self._wrong(name, value, "a whole number")
        return int(value)

    def number(self, name: str) -> float:
        """Return a finite number above 0."""
        if name not in self.fields:
            raise CheckpointError(f"{self.where}/config.json has no field {name!r}")
        value, most = self.fields[name], largest(name, MOST_SIZE)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self._wrong(name, value, "a number above 0")
        if value > most:
            raise self._wrong(name, value, f"at most {most:g}")
        return value

    def count(self, name: str, default: int = 0) -> int:
        """Return a whole number, 0 among them; a default stands for a field missing or null."""
        value = self.fields.get(name)
        if value is None:
            return default
        return 0 if type(value) is int and value == 0 else self.whole(name)

    def refuse_windows(self) -> None:
        """Raise CheckpointError for layers that attend to a part of the text only."""
        kinds = self.fields.get("layer_types") or []
        if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
            raise self._wrong("layer_types", kinds, '"full_attention" in all layers')

    def flag(self, name: str) -> bool:
        """Return whether the field is true; false where it is missing or null."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return bool(value)

    def rope(self) -> Record:
        """Return the settings of unscaled rotary embeddings with the checkpoint's rope_theta, which
        is a field of its own, or part of rope_parameters as transformers 5 writes it. The type
        "default", or none, scales nothing.
        """
        for name in ("rope_scaling", "rope_parameters"):
            if not _is_unscaled(value := self.fields.get(name) or {}):
                raise self.error(f"{name}={value!r:.80} is not covered, only unscaled ones")
        both = ConfigJson({**(self.fields.get("rope_parameters") or {}), **self.fields}, self.where)
        return {"rope_type": "default", "rope_theta": float(both.number("rope_theta"))}

    def token_ids(self, name: str) -> list[int]:
        """Return a token id or a list of them as a list, empty if it is missing or null."""
        value = self.fields.get(name)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if len(ids) > MOST_IDS or not all(type(each) is int and 0 <= each < 2**31 for each in ids):
            raise self._wrong(name, value, "a token id")
        return ids

    def check_heads(self, hidden: int, heads: int, kv_heads: int, head_dim: int | None) -> None:
        """Raise CheckpointError unless the heads share the hidden size, the heads of keys and
        values share the heads, and each head is of even size, as rotary embeddings need it.
        """
        if head_dim is None and hidden % heads:
            raise self.error(f"{heads} heads do not divide the hidden size {hidden}")
        if heads % kv_heads:
            raise self.error(f"{kv_heads} heads of keys and values do not divide {heads} heads")
        if (size := head_dim or hidden // heads) % 2:
            raise self.error(f"a head has the size {size}, and rotary embeddings need an even one")

    def check_numbers(self) -> None:
        """Raise CheckpointError, naming the field, for a number anywhere in it that transformers
        could not take as a size: it makes lists and layers of them.
        """
        for name, value in _numbers(self.fields):
            most = largest(name, MOST_NUMBER)
            if abs(value) > max(most, 2) and abs(value) != math.inf:
                raise self._wrong(name, value, f"at most {most:g}")

    def error(self, problem: str) -> CheckpointError:
        """Return the error that names the file and its problem."""
        return CheckpointError(f"{self.where}/config.json: {problem}")

    def _wrong(self, name: str, value: object, allowed: str) -> CheckpointError:
        return self.error(one_line(f"{name:.80}={json.dumps(value):.80} must be {allowed}"))


def largest(name: str, otherwise: float) -> float:
    """Return the largest value of the field of that name."""
    return MOST.get(name, MOST.get(name.rpartition("_")[2], otherwise))


def _is_unscaled(rope: object) -> bool:
    """Return whether the settings of rotary embeddings scale nothing."""
    if not isinstance(rope, Mapping):
        return False
    kinds = [rope.get("rope_type"), rope.get("type")]
    is_default = all(kind in (None, "default") for kind in kinds)
    return is_default and ("default" in kinds or rope.get("factor") is None)


def _numbers(value: object, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield each number in a JSON value with the name of its field."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _numbers(each, str(key))
    elif isinstance(value, list):
        for each in value:
            yield from _numbers(each, name)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, value
