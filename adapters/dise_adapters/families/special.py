"""The mask token and the end tokens of a checkpoint, from every file that names them."""

from collections.abc import Iterator

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.families.family import Family
from dise_core import CheckpointError, InputError, SpecialTokens

MASK_NAMES = (
    "<|mdm_mask|>", "[MDM_MASK]", "<|mask|>", "<|MASK|>", "<MASK>", "|<MASK>|", "<[MASK]>",
    "<[MASK_TOKEN]>", "[MASK]",
)  # fmt: skip
"""Names of the mask token in diffusion models that add it to their vocabulary."""


def special_tokens(
    family: Family, config: ConfigJson, tokenizer: FastTokenizer, mask_token_id: int | None
) -> SpecialTokens:
    """Return the mask and end tokens of a diffusion model; the first end token pads
    responses. Under uniform noise there is no mask, and the family's ends come first.

    mask_token_id: the user's option. Raises CheckpointError if no source names a mask
    token or two sources disagree, InputError if the user's id contradicts the others.
    """
    names = [tokenizer.id_of(name) for name in family.end_tokens]
    listed_ends, named = config.token_ids("eos_token_id"), [end for end in names if end is not None]
    if family.noise == "uniform":
        if mask_token_id is not None:
            raise InputError(
                f"{config.where} has uniform noise and no mask: leave mask_token_id out",
                "mask_token_id",
            )
        ends = [*named, *listed_ends]
        return SpecialTokens(None, frozenset(ends), ends[0] if ends else None)
    masks = dict(_masks(family, config, tokenizer))
    listed = ", ".join(f"{token_id} by {source}" for source, token_id in masks.items())
    if len(set(masks.values())) > 1:
        raise CheckpointError(f"the files of {config.where} name different mask tokens: {listed}")
    mask_id = next(iter(masks.values()), mask_token_id)
    if mask_id is None:
        raise CheckpointError(
            f"{config.where} names no mask token, so nothing can be denoised; give its id with "
            "--model-args mask_token_id=ID (in Python mask_token_id=ID)"
        )
    if mask_token_id not in (None, mask_id):
        raise InputError(
            f"mask_token_id={mask_token_id} is not the mask: {listed}", "mask_token_id"
        )
    if any(map(len, tokenizer.frame)):  # nothing of a text says that it ends
        return SpecialTokens(mask_id, frozenset())
    ends = [*listed_ends, *named]
    return SpecialTokens(mask_id, frozenset(ends), ends[0] if ends else None)


def _masks(
    family: Family, config: ConfigJson, tokenizer: FastTokenizer
) -> Iterator[tuple[str, int]]:
    for token_id in config.token_ids("mask_token_id"):
        yield "config.json's mask_token_id", token_id
    if tokenizer.mask_id is not None:
        yield "the tokenizer's mask_token", tokenizer.mask_id
    added = tokenizer.added_tokens
    for name in dict.fromkeys((*family.mask_tokens, *MASK_NAMES)):
        mask_id = tokenizer.id_of(name) if name in family.mask_tokens else added.get(name)
        if mask_id is not None:
            yield f"the vocabulary's {name}", mask_id
    if family.mask_id is not None:
        yield "every published checkpoint of this format", family.mask_id
