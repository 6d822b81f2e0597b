"""DiffusionGemma beside transformers' own encoder and decoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dise_adapters.checkpoint.config import ConfigJson  # noqa: F401
from dise_core import LLM, Canvases, Distribution, Ids, Read
from tests import reference_diffusion_gemma as reference
from tests.reference_diffusion_gemma import CANVAS, Reference

PROMPTS = (5, 62, 63, 64, 150)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.write(tmp_path_factory.mktemp("diffusion-gemma"))


def text_of(num_prompt: int, num_canvases: int = 3) -> Ids:
    random = np.random.default_rng(num_prompt)
    return random.integers(8, 264, num_prompt + num_canvases * CANVAS)


def read_of(text: Ids, start: int) -> Read:
    return Read(text, np.arange(start, len(text)), Distribution(), start=start)


@pytest.mark.parametrize("num_prompt", PROMPTS)
def test_three_canvases_are_read_as_transformers_reads_them(folder: Path, num_prompt: int) -> None:
    model, text = LLM(str(folder)).predictor, text_of(num_prompt)
    assert model.info.attention == Canvases(CANVAS)
    [reading] = model.read([read_of(text, num_prompt)])
    expected = Reference(folder).logprobs(text, num_prompt)
    np.testing.assert_allclose(reading.logprobs, expected, atol=1e-4)
