"""What a user adds to the logits of single tokens."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from dise_core.records import Record

MAX_BIASES = 1024
"""Tokens that one request may favour or avoid."""

MAX_BIAS = 100.0
"""The largest bias, either way: as good as writing a token always, or never."""

LAST_ID = 2**31 - 1


def _with_text_keys(biases: object) -> object:
    """Return a mapping with its integer keys as text, as JSON has them, and all else as it is."""
    if not isinstance(biases, dict):
        return biases
    return {str(key) if type(key) is int else key: bias for key, bias in biases.items()}


def _checked(biases: Record) -> Record:
    """Return the biases as floats. Raises ValueError for the first that is none."""
    for key, bias in biases.items():
        if not _is_id(key):
            raise ValueError(f"a token id is a whole number from 0 to {LAST_ID}, not {key!r:.20}")
        is_number = isinstance(bias, int | float) and not isinstance(bias, bool)
        if not is_number or not -MAX_BIAS <= bias <= MAX_BIAS:
            problem = f"the bias of token {key} is a number from {-MAX_BIAS:g} to {MAX_BIAS:g}"
            raise ValueError(f"{problem}, not {bias!r:.20}")
    return {key: float(bias) for key, bias in biases.items()}


def _is_id(key: str) -> bool:
    """Return whether a key is a token id, written without a sign or leading zeros."""
    is_number = key.isascii() and key.isdigit() and len(key) <= len(str(LAST_ID))
    return is_number and str(int(key)) == key and int(key) <= LAST_ID


if TYPE_CHECKING:
    LogitBias = Mapping[int, float] | Mapping[str, float]
else:
    LogitBias = Annotated[
        Record,
        BeforeValidator(_with_text_keys),
        Field(max_length=MAX_BIASES),
        AfterValidator(_checked),
    ]
"""Biases by token id; the ids are kept as text, as JSON has them."""

Biases = tuple[tuple[int, float], ...]
"""Pairs of a token id and its bias, by id."""


def as_pairs(biases: LogitBias) -> Biases:
    """Return checked biases as pairs."""
    return tuple(sorted((int(key), float(bias)) for key, bias in biases.items()))
