"""What checkpoints that are to be loaded take of the memory of each device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import torch

from dise_adapters.local.decoder.speed import is_slow
from dise_adapters.local.devices import choose_device, choose_dtype, free_bytes, is_gpu
from dise_adapters.local.loading.outline import Outline, Size, sizes
from dise_adapters.local.loading.planning import pass_bytes
from dise_core import EngineConfig

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint

SPARE = 1 / 16
"""Of a model that transformers loads as a whole, what a forward pass takes beside it."""

Bytes = dict[str, float]
"""By the device whose memory it is; "cpu" is the main memory."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A checkpoint that is to be loaded, and the type that its weights would get. where:
    its path, or the id of one that is not here yet.
    """

    where: object
    config: EngineConfig
    outline: Outline
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, checkpoint: Checkpoint, config: EngineConfig) -> Self:
        """Return the claim with the type that the options ask for."""
        return cls._of(checkpoint.weights.path, config, Outline.of(checkpoint))

    @classmethod
    def expected(cls, model: str, num_weights: int, is_ours: bool, config: EngineConfig) -> Self:
        """Return about what a model on the hub claims, as if it had 32 layers. is_ours:
        whether our own forward pass runs it, which reads one layer after the other.
        """
        parts = (0, 0, num_weights, num_weights // 32, num_weights // 160)
        return cls._of(model, config, Outline(*parts, "BF16", states=int(is_ours)))

    @classmethod
    def _of(cls, where: object, config: EngineConfig, outline: Outline) -> Self:
        device = choose_device(config.device)
        if str(device) == "cuda":  # one memory has one name
            device = torch.device("cuda", torch.cuda.current_device())
        return cls(where, config, outline, device, choose_dtype(config.dtype, device))

    def having(self, **changes: object) -> Self:
        """Return the claim with changes to its options."""
        config = self.config.model_copy(update=changes)
        return replace(self, config=config, dtype=choose_dtype(config.dtype, self.device))

    @property
    def narrowed(self) -> Self:
        """The same in the 16 bits of its file, where "auto" would be float32."""
        half = self.outline.half
        if self.config.dtype != "auto" or self.dtype != torch.float32 or half is None:
            return self
        is_slow = half == "float16" and self.having(dtype=half).is_slow
        if is_slow and not self.having(dtype="bfloat16").is_slow:
            half = "bfloat16"
        return self.having(dtype=half)

    @property
    def is_slow(self) -> bool:
        """Whether the processor multiplies the type of the weights slowly."""
        is_whole = self.config.quantization is None and not is_gpu(self.device)
        return is_whole and is_slow(self.dtype)

    @property
    def sizes(self) -> dict[str, Size]:
        """The bytes that loading it takes of each memory."""
        return sizes(self.outline, self.device, self.dtype, self.config.quantization)

    @property
    def sizes_in_use(self) -> dict[str, Size]:
        """The same, where a forward pass is to fit as well."""
        place, sizes = str(self.device), self.sizes
        size = sizes[place]
        working = SPARE * size.kept
        if self.outline.states:
            example = torch.empty(
                0, dtype=self.dtype, device="meta" if is_gpu(self.device) else None
            )
            counts = (self.outline.states, self.outline.vocab_size)
            working = pass_bytes(*counts, self.config, example)
        return {**sizes, place: Size(size.kept, max(size.peak, size.kept + working))}


def needs(sizes_of: Sequence[dict[str, Size]]) -> Bytes:
    """Return what models of these sizes take at most, loaded one after the other."""
    places = {place for parts in sizes_of for place in parts}
    return {
        place: _need([parts[place] for parts in sizes_of if place in parts]) for place in places
    }


def _need(parts: Sequence[Size]) -> float:
    return sum(part.kept for part in parts) + max(part.peak - part.kept for part in parts)


def free_of(claims: Sequence[Claim]) -> Bytes:
    """Return what is free of each memory that they need, where that is known."""
    places = {place: torch.device(place) for claim in claims for place in claim.sizes}
    sizes = {place: free_bytes(device) for place, device in places.items()}
    return {place: size for place, size in sizes.items() if size is not None}


def lacking(needs: Bytes, free: Bytes) -> str | None:
    """Return the memory of which too little is free; None where all fits."""
    short = (place for place, size in needs.items() if size > free.get(place, size))
    return next(short, None)
