"""The size of a checkpoint by its headers."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch

from dise_adapters.local.loading.stored import EMBEDDING, HEAD, StoredDecoder, stored_decoder
from dise_adapters.merging import Adapted

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint
    from dise_core.params.engine import Dtype

Numbers = Mapping[str, int]
"""How many numbers each weight holds, by name."""

HALVES: Mapping[str, Dtype] = {"BF16": "bfloat16", "F16": "float16", "packed": "bfloat16"}
"""The type of 16 bits that loses nothing of a file's type, or little of packed ones."""


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
        decoder = stored_decoder(checkpoint, torch.device("cpu"), torch.float32)
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
