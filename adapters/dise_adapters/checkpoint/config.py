"""Reads config.json field by field and refuses unsupported values by name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

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


def refuse_variants(fields: Fields, covered: Mapping[str, Sequence[object]], where: str) -> None:
    """Raise CheckpointError, naming the field and its value, unless each field is absent or has one
    of its covered values. where: the checkpoint, for the message.
    """
    for field, values in covered.items():
        value = fields.get(field, values[0])
        if value not in values:
            raise CheckpointError(
                f"{where}/config.json: {field}={value!r:.80} is not covered, only "
                f"{' or '.join(map(repr, values))}"
            )


def whole(fields: Fields, name: str, where: str) -> int:
    """Return the field's whole number above 0. Raises CheckpointError for anything else."""
    value = number(fields, name, where)
    if value != int(value):
        raise _wrong(name, value, "a whole number", where)
    return int(value)


def whole_or(default: int, fields: Fields, name: str, where: str) -> int:
    """Return the field's whole number above 0, or the default if it is missing or null."""
    return default if fields.get(name) is None else whole(fields, name, where)


def number(fields: Fields, name: str, where: str) -> float:
    """Return the field's finite number above 0. Raises CheckpointError, which names the field, for
    anything else.
    """
    if name not in fields:
        raise CheckpointError(f"{where}/config.json has no field {name!r}")
    value, most = fields[name], largest(name, MOST_SIZE)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _wrong(name, value, "a number above 0", where)
    if value > most:
        raise _wrong(name, value, f"at most {most:g}", where)
    return value


def largest(name: str, otherwise: float) -> float:
    """Return the largest value of the field of that name."""
    return MOST.get(name, MOST.get(name.rpartition("_")[2], otherwise))


def flag(fields: Fields, name: str, where: str) -> bool:
    """Return whether the field is true; false where it is missing or null. Raises CheckpointError,
    naming it, for anything else.
    """
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise _wrong(name, value, "true or false", where)
    return bool(value)


def check_heads(hidden: int, heads: int, kv_heads: int, head_dim: int | None, where: str) -> None:
    """Raise CheckpointError unless the heads share the hidden size, the heads of keys and values
    share the heads, and each head is of even size, as rotary embeddings need it.
    """
    problem = ""
    if head_dim is None and hidden % heads:
        problem = f"{heads} heads do not divide the hidden size {hidden}"
    elif heads % kv_heads:
        problem = f"{kv_heads} heads of keys and values do not divide {heads} heads"
    elif (size := head_dim or hidden // heads) % 2:
        problem = f"a head has the size {size}, and rotary embeddings need an even one"
    if problem:
        raise CheckpointError(f"{where}/config.json: {problem}")


def check_numbers(fields: object, where: str, name: str = "") -> None:
    """Raise CheckpointError, naming the field, for a number anywhere in a config.json that
    transformers could not take as a size: it makes lists and layers of them.
    """
    if isinstance(fields, Mapping):
        for key, value in fields.items():
            check_numbers(value, where, str(key))
    elif isinstance(fields, list):
        for value in fields:
            check_numbers(value, where, name)
    elif isinstance(fields, int | float) and not isinstance(fields, bool):
        most = largest(name, MOST_NUMBER)
        if abs(fields) > max(most, 2) and abs(fields) != math.inf:
            raise _wrong(name, fields, f"at most {most:g}", where)


def _wrong(name: str, value: object, allowed: str, where: str) -> CheckpointError:
    said = one_line(f"{name:.80}={json.dumps(value):.80} must be {allowed}")
    return CheckpointError(f"{where}/config.json: {said}")


def rope(fields: Fields, where: str) -> Record:
    """Return the settings of unscaled rotary embeddings with the checkpoint's rope_theta.

    rope_theta is a field of its own, or part of rope_parameters as transformers 5 writes it. Raises
    CheckpointError for scaled embeddings.
    """
    parameters = fields.get("rope_parameters") or {}
    if not isinstance(parameters, Mapping):
        raise CheckpointError(f"{where}/config.json: rope_parameters must be an object")
    refuse_variants({**parameters, **fields}, {"rope_type": ("default",)}, where)
    theta = float(number({**parameters, **fields}, "rope_theta", where))
    return {"rope_type": "default", "rope_theta": theta}


def token_ids(fields: Fields, name: str, where: str) -> list[int]:
    """Return the field's token id or ids as a list, empty if it is missing or null. Raises
    CheckpointError for anything else.
    """
    value = fields.get(name)
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if len(ids) > MOST_IDS or not all(type(each) is int and 0 <= each < 2**31 for each in ids):
        raise _wrong(name, value, "a token id", where)
    return ids
