"""The size of a checkpoint by its headers, and what loading it takes of each memory."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self

import torch

from dise_adapters.local.decoder.integers import SLICE
from dise_adapters.local.decoder.linear import can_pack
from dise_adapters.local.devices import is_gpu
from dise_adapters.local.loading.stored import EMBEDDING, HEAD, StoredDecoder, stored_decoder
from dise_adapters.merging import Adapted

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint
    from dise_core.params.engine import Dtype, Quantization

Numbers = Mapping[str, int]
"""How many numbers each weight holds, by name."""

HALVES: Mapping[str, Dtype] = {"BF16": "bfloat16", "F16": "float16", "packed": "bfloat16"}
"""The type of 16 bits that loses nothing of a file's type, or little of packed ones."""

STORED = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}

BYTES = {"int8": 1.0, "int4": 0.5 + 2 / 32}
"""Of a quantized weight; in int4, 32 share a scale of 16 bits."""

MAIN = "cpu"


@dataclass(frozen=True, slots=True)
class Size:
    """The bytes of one memory that a model takes: when loaded, and at most before."""

    kept: float
    peak: float


@dataclass(frozen=True, slots=True)
class Outline:
    """How many numbers a checkpoint holds: in its embedding; in its head, 0 where that is
    the embedding or is not told apart; in all layers, in the largest one, in its largest
    weight.

    dtype: that most are stored in, as safetensors calls it, or "packed". experts: numbers
    of experts, which transformers joins where it loads the model. states: those that our
    own forward pass holds for each token; 0 where transformers loads the model.
    vocab_size: of our own.
    unpacked: copies in float32 of the weight that is being read from a GGUF file, or to
    which adapters add.
    is_unpacked_first: whether transformers unpacks all of that file before it loads it.
    """

    embedding: int
    head: int
    layers: int
    layer: int
    weight: int
    dtype: str
    experts: int = 0
    states: int = 0
    vocab_size: int = 0
    unpacked: int = 0
    is_unpacked_first: bool = False

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """Return the outline by files' headers. Raises CheckpointError for bad ones."""
        numbers, stored = Counter[str](), checkpoint.weights.stored
        for weight in stored.values():
            numbers[weight.dtype] += math.prod(weight.shape)
        dtype = max(numbers, key=numbers.__getitem__, default="packed")
        unpacked = 2 * checkpoint.is_gguf + isinstance(checkpoint.weights, Adapted)
        decoder = stored_decoder(checkpoint, torch.device(MAIN), torch.float32)
        if decoder is not None:
            states, vocab_size = decoder.states_per_token, decoder.shapes[EMBEDDING][0]
            return cls(*_own_counts(decoder), dtype, 0, states, vocab_size, unpacked)
        counts = {name: math.prod(weight.shape) for name, weight in stored.items()}
        if checkpoint.is_gguf and checkpoint.settings is None:
            return cls(*_counts(counts), "packed", unpacked=unpacked, is_unpacked_first=True)
        experts = sum(counts[name] for name in counts if ".experts." in name)
        return cls(*_counts(counts), dtype, experts, unpacked=unpacked)

    @property
    def half(self) -> Dtype | None:
        """The type of 16 bits that the file has; None for one in float32."""
        return HALVES.get(self.dtype)


def sizes(
    outline: Outline, device: torch.device, dtype: torch.dtype, quantization: Quantization | None
) -> dict[str, Size]:
    """Return what loading takes of the main memory and of the device's. Pages of a mapped
    file count nothing, as the system may drop them.
    """
    if outline.states:
        return {str(device): _own_size(outline, device, dtype, quantization)}
    size: float = (outline.embedding + outline.head + outline.layers) * dtype.itemsize
    first = 4 * size / dtype.itemsize if outline.is_unpacked_first else 0
    # Mapped weights take memory once they are converted, all before the first experts are
    # joined.
    is_converted = outline.unpacked > 0 or dtype != STORED.get(outline.dtype)
    joined = max(outline.layer, outline.experts * is_converted)
    reading = joined * dtype.itemsize + 4 * outline.unpacked * outline.weight
    model_size = size
    if quantization is not None:
        tables = (outline.embedding + outline.head) * dtype.itemsize
        model_size = tables + outline.layers * BYTES[quantization]
    if not is_gpu(device) or device.type == MAIN:
        return {MAIN: Size(model_size, max(size, first) + reading)}
    straight = quantization is None and find_spec("accelerate") is not None
    passing = Size(0, first + (0 if straight else size) + reading)
    peak = model_size + outline.layer * dtype.itemsize
    return {MAIN: passing, str(device): Size(model_size, peak)}


def _own_size(
    outline: Outline, device: torch.device, dtype: torch.dtype, quantization: Quantization | None
) -> Size:
    """Return what our own decoder takes, whose layers are read one by one: first the
    embedding and the head stand beside what is made of them, later a layer beside all
    that is done.
    """
    size, head, model_size = dtype.itemsize, outline.head, 0.0
    is_mapped = _stays_mapped(outline, device, dtype, quantization)
    if quantization is None:
        is_packed = not is_gpu(device) and can_pack(torch.empty(0, dtype=dtype))
        ends = outline.embedding + (head or outline.embedding * is_packed)
        model_size = size * (ends + outline.layers)
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


def _stays_mapped(
    outline: Outline, device: torch.device, dtype: torch.dtype, quantization: Quantization | None
) -> bool:
    """Return whether layers are made of what the file holds, as StoredDecoder does."""
    stored = STORED.get(outline.dtype)
    if is_gpu(device) or outline.unpacked or stored is None:
        return False
    if quantization is None:
        return stored == dtype and can_pack(torch.empty(0, dtype=dtype))
    return torch.promote_types(stored, dtype) == dtype


def _own_counts(decoder: StoredDecoder) -> tuple[int, int, int, int, int]:
    numbers = {name: math.prod(shape) for name, shape in decoder.shapes.items()}
    embedding, head = numbers.pop(EMBEDDING), numbers.pop(HEAD)
    norm, _, layers, layer, weight = _counts(numbers)
    return embedding, 0 if decoder.is_tied else head, layers + norm, layer, weight


def _counts(numbers: Numbers) -> tuple[int, int, int, int, int]:
    """Return the numbers outside of layers, 0 for a head, and those of all layers, the
    largest layer and the largest weight of one.
    """
    outside, layers, weight = 0, Counter[str](), 0
    for name, count in numbers.items():
        layer = re.match(r"(.*?\.\d+)\.", name)
        if layer is None:
            outside += count
        else:
            layers[layer[1]] += count
            weight = max(weight, count)
    return outside, 0, layers.total(), max(layers.values(), default=0), weight
