"""What a diffusion model's config.json says: variants that are not covered, and its
special tokens.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dise_adapters.tokenizer import FastTokenizer
from dise_core.errors import CheckpointError
from dise_core.sequence import SpecialTokens


def refuse_variants(
    fields: Mapping[str, Any], covered: Mapping[str, Sequence[object]], folder: Path
) -> None:
    """Raise CheckpointError, naming the field and its value, unless each field is absent or has a
    covered value.
    """
    for field, values in covered.items():
        value = fields.get(field, values[0])
        if value not in values:
            raise CheckpointError(
                f"{folder}/config.json: {field}={value!r} is not covered, only "
                f"{' or '.join(map(repr, values))}"
            )


def whole(fields: Mapping[str, Any], name: str, folder: Path) -> int:
    """Return the field's whole number. Raises CheckpointError, naming the field and its value, for
    anything else.
    """
    value = number(fields, name, folder)
    if value != int(value):
        raise CheckpointError(f"{folder}/config.json: {name}={value!r} must be a whole number")
    return int(value)


def number(fields: Mapping[str, Any], name: str, folder: Path) -> float:
    """Return the field's number, which is above 0. Raises CheckpointError, naming the field, for
    anything else.
    """
    if name not in fields:
        raise CheckpointError(f"{folder}/config.json has no field {name!r}")
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise CheckpointError(
            f"{folder}/config.json: {name}={json.dumps(value)} must be a number above 0"
        )
    return value


def special_tokens(
    fields: Mapping[str, Any], tokenizer: FastTokenizer, end_tokens: Sequence[str]
) -> SpecialTokens:
    """Return the mask and end tokens of config.json, and of these names where the vocabulary has
    them.

    Raises CheckpointError without a mask_token_id, or for one of them that is no token id.
    """
    mask_id, eos_id = (_token_id(fields, name) for name in ("mask_token_id", "eos_token_id"))
    if mask_id is None:
        raise CheckpointError("config.json has no mask_token_id, so nothing can be denoised")
    named = (tokenizer.id_of(name) for name in end_tokens)
    eos_ids = frozenset(token_id for token_id in (eos_id, *named) if token_id is not None)
    return SpecialTokens(mask_id, eos_ids, eos_id)


def _token_id(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise CheckpointError(f"config.json: {name}={json.dumps(value)} must be one token id")
    return value
