"""What checkpoints that are to be loaded take of the memory of each device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self

import torch

from dise_adapters.local.decoder.integers import SLICE
from dise_adapters.local.decoder.linear import can_pack
from dise_adapters.local.decoder.speed import is_slow
from dise_adapters.local.devices import choose_device, choose_dtype, free_bytes, is_gpu
from dise_adapters.local.loading.outline import Outline
from dise_adapters.local.loading.planning import pass_bytes
from dise_adapters.local.loading.stored import stays_mapped
from dise_core import EngineConfig

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint

SPARE = 1 / 16
"""Of a model that transformers loads as a whole, what a forward pass takes beside it."""

STORED = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}

BYTES = {"int8": 1.0, "int4": 0.5 + 2 / 32}
"""Of a quantized weight; in int4, 32 share a scale of 16 bits."""

MAIN = "cpu"

Bytes = dict[str, float]
"""By the device whose memory it is; "cpu" is the main memory."""


@dataclass(frozen=True, slots=True)
class Size:
    """The bytes of one memory that a model takes: when loaded, and at most before."""

    kept: float
    peak: float


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
        weights, outline = checkpoint.weights, Outline.of(checkpoint)
        where = weights.hub_id or weights.path
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
        """The bytes that loading it takes of the main memory and of the device's. Pages of
        a mapped file count nothing, as the system may drop them.
        """
        outline, itemsize = self.outline, self.dtype.itemsize
        quantization = self.config.quantization
        if outline.states:
            return {str(self.device): self._own_size()}
        size: float = (outline.embedding + outline.head + outline.layers) * itemsize
        first = 4 * size / itemsize if outline.is_unpacked_first else 0
        # Mapped weights take memory once they are converted, all before the first experts
        # are joined.
        is_converted = outline.unpacked > 0 or self.dtype != STORED.get(outline.dtype)
        joined = max(outline.layer, outline.experts * is_converted)
        reading = joined * itemsize + 4 * outline.unpacked * outline.weight
        model_size = size
        if quantization is not None:
            tables = (outline.embedding + outline.head) * itemsize
            model_size = tables + outline.layers * BYTES[quantization]
        if not is_gpu(self.device) or self.device.type == MAIN:
            return {MAIN: Size(model_size, max(size, first) + reading)}
        straight = quantization is None and find_spec("accelerate") is not None
        passing = Size(0, first + (0 if straight else size) + reading)
        peak = model_size + outline.layer * itemsize
        return {MAIN: passing, str(self.device): Size(model_size, peak)}

    def _own_size(self) -> Size:
        """Return what our own decoder takes, whose layers are read one by one: first the
        embedding and the head stand beside what is made of them, later a layer beside all
        that is done.
        """
        outline, size, quantization = self.outline, self.dtype.itemsize, self.config.quantization
        head, is_mapped = outline.head, self._stays_mapped()
        if quantization is None:
            is_packed = not is_gpu(self.device) and can_pack(torch.empty(0, dtype=self.dtype))
            ends = outline.embedding + (head or outline.embedding * is_packed)
            model_size: float = size * (ends + outline.layers)
            tables, rounding = size * (ends + head), 0
            copies = 1 if is_mapped else 2
        else:
            model_size = outline.embedding + head + BYTES[quantization] * outline.layers
            read = 0 if is_mapped else size
            tables = (read + 1) * (outline.embedding + head)
            rounding = 16 * min(outline.weight, SLICE)  # in float32, with three more of that size
            copies = 0 if is_mapped else 1
        unpacking = 4 * outline.unpacked
        tables += unpacking * max(outline.embedding, head)
        layer = copies * size * outline.layer + rounding + unpacking * outline.weight
        return Size(model_size, max(tables, model_size + layer))

    def _stays_mapped(self) -> bool:
        """Return whether layers are made of what the file holds."""
        stored, is_rounded = STORED.get(self.outline.dtype), self.config.quantization is not None
        if self.outline.unpacked or stored is None:
            return False
        return stays_mapped(stored, self.dtype, self.device, is_rounded)

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
