"""Whether checkpoints fit into the free memory, before a byte of weights is read."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args

from dise_adapters.local.loading.claims import Bytes, Claim, free_of, lacking, needs
from dise_adapters.local.loading.planning import GIB
from dise_core import EngineConfig, InputError
from dise_core.params.engine import Quantization

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint

log = logging.getLogger(__name__)


def fitted(pairs: Sequence[tuple[Checkpoint, EngineConfig]]) -> list[EngineConfig]:
    """Return the options with which the checkpoints fit into the memory that is free, all
    together. Where "auto" means float32, and that with a forward pass is too large, it
    becomes the file's own 16 bits; the first checkpoint chooses first. Raises InputError
    where nothing fits.

    With a device map the options stay as they are: what does not fit goes to the disk.
    """
    options = [config for _, config in pairs]
    wide = {number: Claim.of(*pair) for number, pair in enumerate(pairs) if not pair[1].device_map}
    claims = {number: claim.narrowed for number, claim in wide.items()}
    free = free_of(list(claims.values()))
    if wide:
        _refuse_too_large(list(claims.values()), free)
    for number, claim in wide.items():
        if claim.config.dtype != "auto" and claim.is_slow:
            _tell_slow(claim)
        sizes = [claims[index].sizes for index in claims if index != number]
        required = needs([claim.sizes_in_use, *sizes])
        if (place := lacking(required, free)) is None:
            claims[number] = claim
        elif claims[number] is not claim:
            options[number] = claims[number].config
            _tell_narrowed(claims[number], required[place], free[place], len(sizes))
        if pairs[number][0].weights.hub_id is not None:
            _tell_needs(claims[number], free)
    return options


def _tell_slow(claim: Claim) -> None:
    quick = "float32" if claim.having(dtype="bfloat16").is_slow else "bfloat16"
    log.warning(
        "This processor multiplies %s slowly: --dtype %s takes less time.",
        claim.config.dtype,
        quick,
    )


def _tell_narrowed(claim: Claim, num_bytes: float, free: float, num_others: int) -> None:
    is_stored = claim.config.dtype == claim.outline.half
    log.warning(
        "The checkpoint in %s is loaded as %s, %s: float32 would need %.1f GiB%s, and "
        "%.1f GiB are free.",
        claim.where,
        claim.config.dtype,
        "as it is stored" if is_stored else "as this processor multiplies float16 slowly",
        num_bytes / GIB,
        ", with the model beside it" if num_others else "",
        free / GIB,
    )


def _tell_needs(claim: Claim, free: Bytes) -> None:
    needed = (
        f"{size / GIB:.1f} GiB of {_memory(place)}"
        + (f", of which {free[place] / GIB:.1f} GiB are free" if place in free else "")
        for place, size in needs([claim.sizes]).items()
    )
    log.warning(
        "The checkpoint in %s is not on this machine yet. As %s it needs %s.",
        claim.where,
        _type(claim),
        " and ".join(needed),
    )


def _refuse_too_large(claims: Sequence[Claim], free: Bytes) -> None:
    """Raise InputError where the claims do not fit, with what would."""
    first, *judges = claims
    required = needs([claim.sizes for claim in claims])
    if (place := lacking(required, free)) is None:
        return
    beside = f" and what is loaded beside it ({_paths(judges)})" if judges else ""
    ways = [f"{way} needs {size / GIB:.1f} GiB" for way, size in _ways(first, judges, free, place)]
    advice = f"What fits: {', '.join(ways)}." if ways else "No other type of weights fits either."
    raise InputError(
        f"The checkpoint in {_paths([first])}{beside} needs {required[place] / GIB:.1f} GiB of "
        f"{_memory(place)} as {_type(first)}, and {max(0, free[place]) / GIB:.1f} GiB are free. "
        f"{advice}",
        "model",
    )


def _ways(
    first: Claim, judges: Sequence[Claim], free: Bytes, place: str
) -> Iterator[tuple[str, float]]:
    """Yield the options of the first claim with which all fit, and the bytes they need."""
    changes: dict[str, dict[str, Any]] = {"--dtype bfloat16": {"dtype": "bfloat16"}}
    for name in get_args(Quantization):
        changes[f"--quantization {name}"] = {"dtype": "auto", "quantization": name}
    for option, change in changes.items():
        claim = first.having(**change).narrowed
        required = needs([claim.sizes, *(judge.sizes for judge in judges)])
        if lacking(required, free) is None:
            yield option, required[place]


def _paths(claims: Sequence[Claim]) -> str:
    return " and ".join(str(claim.where) for claim in claims)


def _memory(place: str) -> str:
    return "main memory" if place == "cpu" else f"the memory of {place}"


def _type(claim: Claim) -> str:
    return claim.config.quantization or str(claim.dtype).removeprefix("torch.")
