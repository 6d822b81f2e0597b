"""Whether a checkpoint has every expert, by the headers of its files: transformers joins those of a
layer into one tensor, and says little where that fails.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from dise_adapters.checkpoint.files import one_line
from dise_adapters.checkpoint.weights import Stored
from dise_core.errors import CheckpointError

EXPERT = re.compile(r"^(.*\.experts)\.(\d+)\.(.+)$")


def check_experts(folder: Path, stored: Mapping[str, Stored], num_experts: int) -> None:
    """Raise CheckpointError, naming the weight, unless each layer with experts has all of them, the
    weights of one kind in one shape.
    """
    found: dict[tuple[str, str], dict[int, tuple[int, ...]]] = defaultdict(dict)
    for name, weight in stored.items():
        if match := EXPERT.match(name):
            layer, index, part = match.groups()
            found[layer, part][int(index)] = weight.shape
    for (layer, part), sizes in found.items():
        for index in sorted({*range(num_experts), *sizes}):
            name = one_line(f"{layer}.{index}.{part}")
            if index >= num_experts or index not in sizes:
                verb = "lacks" if index not in sizes else "has extra"
                raise CheckpointError(f"the checkpoint in {folder} {verb} weights: {name}")
            if sizes[index] != sizes[0]:
                raise CheckpointError(f"the checkpoint in {folder} has misshapen weights: {name}")
