"""Whether checkpoints fit into the memory that is free, before a byte of their weights is read."""

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


def fitted(wanted: Sequence[tuple[Checkpoint, EngineConfig]]) -> list[EngineConfig]:
    """Return the options with which the checkpoints fit into the memory that is free, all together.
    Where "auto" means float32, and that with a forward pass is too large, it becomes the file's own
    16 bits; the first checkpoint chooses first. Raises InputError where nothing fits.

    With a device map the options stay as they are: what does not fit goes to the disk.
    """
    options = [config for _, config in wanted]
    wide = {number: Claim.of(*pair) for number, pair in enumerate(wanted) if not pair[1].device_map}
    chosen = {number: claim.narrowed for number, claim in wide.items()}
    free = free_of(list(chosen.values()))
    if wide:
        _refuse_too_large(list(chosen.values()), free)
    for number, claim in wide.items():
        others = [other.sizes for index, other in chosen.items() if index != number]
        needed = needs([claim.sizes_in_use, *others])
        if (place := lacking(needed, free)) is None:
            chosen[number] = claim
        elif chosen[number] is not claim:
            options[number] = chosen[number].config
            _tell_narrowed(chosen[number], needed[place], free[place], len(others))
    return options


def _tell_narrowed(claim: Claim, needed: float, free: float, num_others: int) -> None:
    log.warning(
        "The checkpoint in %s is loaded as %s, as it is stored: float32 would need %.1f GiB%s, and "
        "%.1f GiB are free.",
        claim.checkpoint.folder,
        claim.config.dtype,
        needed / GIB,
        ", with the model beside it" if num_others else "",
        free / GIB,
    )


def _refuse_too_large(claims: Sequence[Claim], free: Bytes) -> None:
    """Raise InputError where the claims do not fit, with what would."""
    first, *others = claims
    needed = needs([claim.sizes for claim in claims])
    if (place := lacking(needed, free)) is None:
        return
    memory = "main memory" if place == "cpu" else f"the memory of {place}"
    beside = f" and what is loaded beside it ({_named(others)})" if others else ""
    ways = [f"{way} needs {size / GIB:.1f} GiB" for way, size in _ways(first, others, free, place)]
    advice = f"What fits: {', '.join(ways)}." if ways else "No other type of weights fits either."
    raise InputError(
        f"The checkpoint in {_named([first])}{beside} needs {needed[place] / GIB:.1f} GiB of "
        f"{memory} as {_type(first)}, and {max(0, free[place]) / GIB:.1f} GiB are free. {advice}",
        "model",
    )


def _ways(
    first: Claim, others: Sequence[Claim], free: Bytes, place: str
) -> Iterator[tuple[str, float]]:
    """Yield the options of the first claim with which all fit, and the bytes that all then need."""
    changes: dict[str, dict[str, Any]] = {"--dtype bfloat16": {"dtype": "bfloat16"}}
    for name in get_args(Quantization):
        changes[f"--quantization {name}"] = {"dtype": "auto", "quantization": name}
    for option, change in changes.items():
        claim = first.having(**change).narrowed
        needed = needs([claim.sizes, *(other.sizes for other in others)])
        if lacking(needed, free) is None:
            yield option, needed[place]


def _named(claims: Sequence[Claim]) -> str:
    return " and ".join(str(claim.checkpoint.weights.path) for claim in claims)


def _type(claim: Claim) -> str:
    return claim.config.quantization or str(claim.dtype).removeprefix("torch.")
