"""Reads config.json field by field and refuses unsupported values by name."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dise_adapters.checkpoint.files import one_line
from dise_core import CheckpointError
from dise_core.records import JsonFields

MAX_LAYERS = 1024
"""Several times the layers of any published model, built before weights are read."""

MAX_WHOLE, MAX_NUMBER = 2**24, 2**40
"""The largest values of other whole numbers, and of any number."""


@dataclass(frozen=True, slots=True)
class ConfigJson:
    """The fields of a config.json, read one by one. Each method raises CheckpointError,
    which names the field, for a value that is not what it returns.

    where: the checkpoint, for errors.
    """

    fields: JsonFields
    where: str

    def refuse_variants(self, covered: Mapping[str, Sequence[object]]) -> None:
        """Raise CheckpointError for a field whose value is not covered, and name both."""
        for field, values in covered.items():
            value = self.fields.get(field, values[0])
            if value not in values:
                allowed = " or ".join(map(repr, values))
                raise self.error(f"{field}={value!r:.80} is not covered, only {allowed:.200}")

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number above 0; the default for a field missing or null."""
        if default is not None and self.fields.get(name) is None:
            return default
        value = self.number(name, MAX_LAYERS if _is_of_layers(name) else MAX_WHOLE)
        if value != int(value):
            raise self._wrong(name, value, "a whole number")
        return int(value)

    def number(self, name: str, limit: int = MAX_NUMBER) -> float:
        """Return a number above 0 and at most `most`."""
        if name not in self.fields:
            raise CheckpointError(f"{self._file} has no field {name!r}")
        value = self.fields[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self._wrong(name, value, "a number above 0")
        if value > limit:
            raise self._wrong(name, value, f"at most {limit}")
        return value

    def count(self, name: str) -> int:
        """Return a whole number of 0 or more; 0 if the field is missing or null."""
        return self.whole(name) if self.fields.get(name) else 0

    def flag(self, name: str) -> bool:
        """Return whether the field is true; false where it is missing or null."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return bool(value)

    def rope(self) -> dict[str, object]:
        """Return the settings of unscaled rotary embeddings with the checkpoint's
        rope_theta, which is a field of its own, or part of rope_parameters as
        transformers 5 writes it. The type "default", or none, scales nothing.
        """
        self._unscaled("rope_scaling")
        fields = {**self._unscaled("rope_parameters"), **self.fields}
        theta = ConfigJson(fields, self.where).number("rope_theta")
        return {"rope_type": "default", "rope_theta": float(theta)}

    def token_ids(self, name: str) -> list[int]:
        """Return one or more token ids as a list, empty for a field missing or null."""
        value = self.fields.get(name)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        valid_ids = [i for i in ids if type(i) is int and 0 <= i < 2**31]
        if len(valid_ids) < len(ids):
            raise self._wrong(name, value, "a token id")
        return valid_ids

    def _unscaled(self, name: str) -> JsonFields:
        rope = self.fields.get(name) or {}
        if isinstance(rope, Mapping):
            rope_types = [rope.get("rope_type"), rope.get("type")]
            is_default = all(rope_type in (None, "default") for rope_type in rope_types)
            if is_default and ("default" in rope_types or rope.get("factor") is None):
                return rope
        raise self.error(f"{name}={rope!r:.80} is not covered, only unscaled ones")

    def check_heads(self, hidden: int, heads: int, kv_heads: int, head_dim: int | None) -> None:
        """Raise CheckpointError unless the heads share the hidden size, the heads of keys
        and values share the heads, and each head is of even size, as rotary embeddings
        need it.
        """
        if head_dim is None and hidden % heads:
            raise self.error(f"{heads} heads do not divide the hidden size {hidden}")
        if heads % kv_heads:
            raise self.error(f"{kv_heads} heads of keys and values do not divide {heads} heads")
        if (size := head_dim or hidden // heads) % 2:
            raise self.error(f"a head has the size {size}, and rotary embeddings need an even one")

    def check_layers(self) -> None:
        """Raise CheckpointError for more layers than DiSE lets transformers build."""
        for name, value in self.fields.items():
            if _is_of_layers(name) and isinstance(value, int) and value > MAX_LAYERS:
                raise self._wrong(name, value, f"at most {MAX_LAYERS}")

    def error(self, problem: str) -> CheckpointError:
        """Return the error that names the file."""
        return CheckpointError(f"{self._file}: {problem}")

    @property
    def _file(self) -> str:
        return self.where if self.where.endswith(".gguf") else f"{self.where}/config.json"

    def _wrong(self, name: str, value: object, allowed: str) -> CheckpointError:
        return self.error(one_line(f"{name:.80}={json.dumps(value):.80} must be {allowed}"))


def _is_of_layers(name: str) -> bool:
    return name.endswith(("layers", "layer"))
