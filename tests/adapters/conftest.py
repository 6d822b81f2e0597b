"""Checkpoints that several modules read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import reference_a2d, reference_dream
from tests.block_checkpoints import END


@pytest.fixture(scope="session")
def llada(checkpoint_of: Callable[[str], Path]) -> Path:
    """A LLaDA, which no test changes."""
    return checkpoint_of("llada")


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A Qwen3 and a Qwen2 to be loaded with attention in blocks."""
    folder = tmp_path_factory.mktemp("blocks")
    return {
        "qwen3": reference_a2d.write_checkpoint(folder / "a2d", eos_token_id=END),
        "qwen2": reference_dream.write_checkpoint(folder / "dream", gain=1.0),
    }
