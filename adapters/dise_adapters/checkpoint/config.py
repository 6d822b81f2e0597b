"""Reads config.json field by field and refuses unsupported values by name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from dise_core.errors import CheckpointError
from dise_core.records import Fields, Record


def refuse_variants(fields: Fields, covered: Mapping[str, Sequence[object]], where: str) -> None:
    """Raise CheckpointError, naming the field and its value, unless each field is absent or has one
    of its covered values. where: the checkpoint, for the message.
    """
    for field, values in covered.items():
        value = fields.get(field, values[0])
        if value not in values:
            raise CheckpointError(
                f"{where}/config.json: {field}={value!r} is not covered, only "
                f"{' or '.join(map(repr, values))}"
            )


def whole(fields: Fields, name: str, where: str) -> int:
    """Return the field's whole number above 0. Raises CheckpointError for anything else."""
    value = number(fields, name, where)
    if value != int(value):
        raise CheckpointError(f"{where}/config.json: {name}={value!r} must be a whole number")
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
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise CheckpointError(
            f"{where}/config.json: {name}={json.dumps(value)} must be a number above 0"
        )
    return value


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
    if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in ids):
        raise CheckpointError(f"{where}/config.json: {name}={json.dumps(value)} must be a token id")
    return ids
