"""Engines that start once: a real vLLM in this process for each tiny checkpoint. Skipped where vLLM
is not installed.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from dise_core import LLM
from tests import reference_a2d, reference_dream, reference_llada

BATCH = 2048


KEPT: list[LLM] = []
"""Engines of one process share its process groups, which the first one to go would take along."""

FOLDERS: dict[str, Callable[[Path], Path]] = {
    "llada": partial(reference_llada.checkpoint, gain=0.7),
    "dream": partial(reference_dream.write_checkpoint, gain=0.7, num_attention_heads=2),
    "a2d": partial(reference_a2d.write_checkpoint, head_dim=32),
}
"""Write a tiny checkpoint with full attention, its heads of a size that vLLM takes."""


@pytest.fixture(scope="session", params=list(FOLDERS))
def engines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LLM, LLM]:
    """The same checkpoint on vLLM and on transformers."""
    folder = str(FOLDERS[request.param](tmp_path_factory.mktemp(request.param)))
    KEPT.append(LLM(folder, engine="vllm", max_batch_tokens=BATCH))
    return KEPT[-1], LLM(folder)


@pytest.fixture(scope="session")
def countdown() -> tuple[LLM, LLM]:
    """The embedded model on both."""
    KEPT.append(LLM("countdown", engine="vllm", max_batch_tokens=BATCH))
    return KEPT[-1], LLM("countdown")
