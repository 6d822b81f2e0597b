"""Small checkpoints of every kind, with random weights. Only tests use them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests import (
    reference_a2d,
    reference_dream,
    reference_gpt2,
    reference_llada,
    reference_modernbert,
    tiny_causal,
)
from tests.published import PUBLISHED
from tests.tiny_format import edit

WRITERS: dict[str, Callable[[Path], object]] = {
    "llada": reference_llada.checkpoint,
    "grouped": partial(reference_llada.checkpoint, n_heads=4, n_kv_heads=2),
    "dream": reference_dream.write_checkpoint,
    "qwen3": reference_a2d.write_checkpoint,
    "diffugpt": reference_gpt2.write_checkpoint,
    "modernbert": reference_modernbert.write_checkpoint,
    "llama": lambda folder: tiny_causal.checkpoint(folder, tiny_causal.llama()),
    "gpt2": lambda folder: tiny_causal.checkpoint(folder, tiny_causal.gpt2()),
}
"""What writes each kind into a folder."""


def write(kind: str, folder: Path, **fields: object) -> Path:
    """Write a checkpoint of that kind, a published format in a folder of its name below the given
    one, with these fields of config.json. Return its folder.
    """
    if kind in PUBLISHED:
        return PUBLISHED[kind].write(folder, **fields)
    WRITERS[kind](folder)
    edit(folder / "config.json", **fields)
    return folder
