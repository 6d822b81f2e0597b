"""Weights that a checkpoint holds in one matrix and the model in several."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from safetensors import safe_open

from dise_adapters.checkpoint.files import one_line
from dise_adapters.checkpoint.weights import weight_files
from dise_adapters.families.family import Split
from dise_core.errors import CheckpointError
from dise_core.records import Fields


def taken_apart(folder: Path, split: Split, settings: Fields | None) -> dict[str, object]:
    """Return the weights of a folder by name, those of the split as their parts, the others as
    handles that are read later.

    Raises CheckpointError for one whose rows are not those of its parts.
    """
    found: dict[str, object] = {}
    rows = split.rows(dict(settings or {}))
    for path in weight_files(folder):
        file: Any = safe_open(path, framework="pt")
        for name in sorted(file.keys()):
            if not re.search(split.pattern, name):
                found[name] = file.get_slice(name)
                continue
            whole = file.get_tensor(name)
            if whole.shape[:1] != (sum(rows),):
                raise CheckpointError(
                    f"the checkpoint in {folder} has misshapen weights: {one_line(name)} of "
                    f"{list(whole.shape)}, not of {' + '.join(map(str, rows))} rows"
                )
            for part, weights in zip(split.parts, whole.split(rows), strict=True):
                found[re.sub(split.pattern, part, name)] = weights
    return found
