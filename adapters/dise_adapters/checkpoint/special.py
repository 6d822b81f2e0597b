"""The mask token and the end tokens of a checkpoint, from every file that names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_core.errors import CheckpointError, InputError
from dise_core.records import Fields
from dise_core.sequence import SpecialTokens

MASK_NAMES = (
    "<|mdm_mask|>",
    "[MDM_MASK]",
    "<|mask|>",
    "<|MASK|>",
    "<MASK>",
    "|<MASK>|",
    "<[MASK]>",
    "<[MASK_TOKEN]>",
    "[MASK]",
)
"""Names of the mask token in diffusion models that add it to their vocabulary."""


def special_tokens(
    fields: Fields,
    tokenizer: FastTokenizer,
    end_tokens: Sequence[str],
    where: str,
    *,
    mask_tokens: Sequence[str] = (),
    mask_token_id: int | None = None,
    family_mask: int | None = None,
) -> SpecialTokens:
    """Return the mask and end tokens of a diffusion model.

    fields: those of config.json. end_tokens, mask_tokens: their names, looked up in the vocabulary;
    the first end token found there pads responses if config.json names none. mask_token_id: the
    user's option. family_mask: the id in every published checkpoint of the family. Raises
    CheckpointError if no source names a mask token or two sources disagree, InputError if the
    user's id contradicts the others.
    """
    found = dict(_masks(fields, tokenizer, mask_tokens, where))
    if family_mask is not None:
        found["every published checkpoint of this format"] = family_mask
    named = ", ".join(f"{token_id} by {source}" for source, token_id in found.items())
    if len(set(found.values())) > 1:
        raise CheckpointError(f"the files of {where} name different mask tokens: {named}")
    if not found and mask_token_id is None:
        raise CheckpointError(
            f"{where} names no mask token, so nothing can be denoised; give its id with "
            "--mask-token-id (mask_token_id=...)"
        )
    mask_id = next(iter(found.values()), mask_token_id)
    if mask_token_id not in (None, mask_id):
        raise InputError(f"mask_token_id={mask_token_id} is not the mask: {named}", "mask_token_id")
    ends = ConfigJson(fields, where).token_ids("eos_token_id")
    others = [tokenizer.id_of(name) for name in end_tokens]
    known = [token_id for token_id in (*ends, *others) if token_id is not None]
    return SpecialTokens(mask_id, frozenset(known), known[0] if known else None)


def _masks(
    fields: Fields, tokenizer: FastTokenizer, names: Sequence[str], where: str
) -> Iterator[tuple[str, int]]:
    """Yield each source that names a mask token, with the id that it gives."""
    for token_id in ConfigJson(fields, where).token_ids("mask_token_id"):
        yield "config.json's mask_token_id", token_id
    if tokenizer.mask_id is not None:
        yield "the tokenizer's mask_token", tokenizer.mask_id
    added = tokenizer.added_tokens
    for name in dict.fromkeys((*names, *MASK_NAMES)):
        named = tokenizer.id_of(name) if name in names else added.get(name)
        if named is not None:
            yield f"the vocabulary's {name}", named
