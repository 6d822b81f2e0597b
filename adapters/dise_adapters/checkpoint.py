"""What a diffusion model's config.json says: variants that are not covered, and its special tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dise_adapters.tokenizer import FastTokenizer
from dise_core.errors import CheckpointError
from dise_core.sequence import SpecialTokens


def refuse_variants(fields: Mapping[str, Any], covered: Mapping[str, Sequence[object]], folder: Path) -> None:
    """Raise CheckpointError, naming the field and its value, unless each field is absent or has a covered value."""
    for field, values in covered.items():
        value = fields.get(field, values[0])
        if value not in values:
            raise CheckpointError(
                f"{folder}/config.json: {field}={value!r} is not covered, only {' or '.join(map(repr, values))}"
            )


def special_tokens(fields: Mapping[str, Any], tokenizer: FastTokenizer, end_tokens: Sequence[str]) -> SpecialTokens:
    """Return the mask and end tokens of config.json, and of these names where the vocabulary has them.

    Raises CheckpointError without a mask_token_id.
    """
    mask_id, eos_id = fields.get("mask_token_id"), fields.get("eos_token_id")
    if mask_id is None:
        raise CheckpointError("config.json has no mask_token_id, so nothing can be denoised")
    named = (tokenizer.id_of(name) for name in end_tokens)
    eos_ids = frozenset(token_id for token_id in (eos_id, *named) if token_id is not None)
    return SpecialTokens(mask_id, eos_ids, eos_id)
