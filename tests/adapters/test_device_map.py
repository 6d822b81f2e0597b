"""A model that accelerate spreads: over one device, and over main memory and the disk."""

from pathlib import Path

import numpy as np
import pytest

from dise_core import LLM
from tests import reference_diffusion_gemma
from tests.adapters.agreement import ROUNDED, logprobs
from tests.reference_llada import checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("accelerate")
    return checkpoint(tmp_path / "model", shards=3, n_layers=4)


def spread(folder: Path) -> LLM:
    """Main memory for less than the model's 660 kB of weights."""
    return LLM(str(folder), device_map="auto", max_memory={"cpu": "400KB"})


def test_one_device_runs_as_without_a_map(folder: Path) -> None:
    llm = LLM(str(folder), device_map="auto")
    assert llm.predictor.room is not None
    np.testing.assert_allclose(logprobs(llm), logprobs(LLM(str(folder))), atol=ROUNDED)


def test_what_does_not_fit_into_memory_is_read_from_the_disk(folder: Path) -> None:
    llm = spread(folder)
    model = llm.predictor._reader._body._model  # type: ignore[attr-defined]
    assert any(weight.is_meta for weight in model.parameters()), "nothing is on the disk"
    assert llm.predictor.room is None
    np.testing.assert_allclose(logprobs(llm), logprobs(LLM(str(folder))), atol=ROUNDED)


@pytest.mark.parametrize("memory", [{}, {"cpu": "900KB"}, {"cpu": "100KB"}])
def test_layers_of_canvases_are_spread_one_by_one(tmp_path: Path, memory: dict[str, str]) -> None:
    pytest.importorskip("accelerate")
    folder = str(reference_diffusion_gemma.write(tmp_path / "gemma"))
    llm = LLM(folder, device_map="auto", max_memory=memory)
    layers = llm.predictor._reader._body._layers  # type: ignore[attr-defined]
    is_meta = [any(weight.is_meta for weight in layer.parameters()) for layer in layers]
    assert any(is_meta) == bool(memory)
    assert is_meta == sorted(is_meta), "the first layers have the quicker places"
    np.testing.assert_allclose(logprobs(llm), logprobs(LLM(folder)), atol=ROUNDED)
