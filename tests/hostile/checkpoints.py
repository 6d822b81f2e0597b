"""Checkpoints that work, to be spoilt, and what a refusal looks like."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dise_core.errors import InputError, ModelError
from tests import reference_a2d, reference_dream, reference_llada, tiny_causal
from tests.hostile.bounds import bounded
from tests.published import LLADA2, SDAR

TINY = {"sdar": SDAR, "llada2": LLADA2}


def write_whole(folder: Path, kind: str) -> Path:
    """Write a checkpoint that works, of that kind."""
    if kind == "llama":
        tiny_causal.checkpoint(folder, tiny_causal.llama())
    elif kind == "llada":
        reference_llada.checkpoint(folder)
    elif kind in TINY:
        TINY[kind].write_into(folder, block_size=4)
    else:
        {"dream": reference_dream, "a2d-qwen3": reference_a2d}[kind].write_checkpoint(folder)
    return folder


@contextmanager
def one_line(match: str = "") -> Iterator[None]:
    """Assert that a refusal of one line, with that in it, is raised inside, within the bounds."""
    with bounded(), pytest.raises((ModelError, InputError), match=match) as caught:
        yield
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 1000
