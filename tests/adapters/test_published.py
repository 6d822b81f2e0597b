"""Every published format of diffusion models against an independent model, at a tiny size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dise_adapters.checkpoint.hub import read_config
from dise_adapters.plugin import FAMILIES
from dise_adapters.predictor import predictor_of
from dise_core import LLM, Distribution, InputError, Read
from dise_core.errors import CheckpointError, UnknownNameError
from dise_core.model import BIDIRECTIONAL
from dise_core.testing import check_mask_predictor
from tests import reference_gpt2, reference_modernbert
from tests.published import DIFFULLAMA, PUBLISHED
from tests.reference_modernbert import ReferenceModernBert

LENGTHS = (32, 64)
"""Texts that end where a block ends, whatever its length."""


@pytest.fixture(autouse=True)
def _fresh_configs() -> None:
    read_config.cache_clear()


def texts() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(0, 70, length) for length in LENGTHS]


def assert_agrees(llm: LLM, reference: Any) -> None:
    """Assert that the answers are those of the independent model."""
    reads = [Read(ids, np.arange(len(ids)), Distribution()) for ids in texts()]
    for read, reading in zip(reads, llm.predictor.read(reads), strict=True):
        expected = reference.logprobs(read.token_ids.tolist()).numpy()
        assert np.abs(reading.logprobs - expected).max() < 1e-5


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_format_agrees_with_an_independent_model(tmp_path: Path, name: str) -> None:
    published = PUBLISHED[name]
    folder = published.write(tmp_path)
    claiming = [
        each for each, family in FAMILIES.items() if predictor_of(family).claims(str(folder))
    ]
    assert claiming == [published.family]
    llm = LLM(str(folder))
    info = llm.predictor.info
    assert (info.attention, info.special.mask_id) == (published.attention, published.mask_id)
    assert info.special.eos_id == published.eos_id
    assert_agrees(llm, published.reference(folder))


@pytest.mark.parametrize("name", ["sdar", "llada2", "rnd1", "fast-dllm-v2"])
def test_a_published_format_keeps_the_contract_of_a_predictor(tmp_path: Path, name: str) -> None:
    check_mask_predictor(LLM(str(PUBLISHED[name].write(tmp_path))).predictor)


@pytest.mark.parametrize("name", [*PUBLISHED])
def test_no_published_format_is_taken_for_a_judge(tmp_path: Path, name: str) -> None:
    folder = PUBLISHED[name].write(tmp_path)
    with pytest.raises(InputError, match="is not auto-regressive"):
        LLM("countdown", judge=str(folder))


@pytest.mark.parametrize("name", ["stable-diffcoder", "stable-diffcoder of old", "open-dcoder"])
def test_what_looks_like_a_judge_is_none_even_when_its_adapter_is_named(
    tmp_path: Path, name: str
) -> None:
    folder = PUBLISHED[name].write(tmp_path)
    with pytest.raises(CheckpointError, match="is refused: it is a diffusion model by its"):
        LLM(str(folder), adapter="llama")


@pytest.mark.parametrize("name", ["llada2", "llada-moe", "sdar-moe"])
def test_the_mixture_routes_each_token_on_its_own(tmp_path: Path, name: str) -> None:
    """A text in a batch with others gets the answers that it gets alone."""
    llm = LLM(str(PUBLISHED[name].write(tmp_path)))
    reads = [Read(ids, np.arange(len(ids)), Distribution()) for ids in texts()]
    together = llm.predictor.read(reads)
    for read, reading in zip(reads, together, strict=True):
        [alone] = llm.predictor.read([read])
        assert np.abs(alone.logprobs - reading.logprobs).max() < 1e-5


def test_a_modernbert_that_chats_agrees_with_an_independent_one(tmp_path: Path) -> None:
    folder = reference_modernbert.write_checkpoint(tmp_path / "model")
    llm, reference = LLM(str(folder)), ReferenceModernBert(folder)
    assert llm.predictor.info.attention == BIDIRECTIONAL
    assert llm.predictor.info.special.mask_id == reference_modernbert.MASK
    assert llm.predictor.info.special.eos_ids == {62, 65}
    assert_agrees(llm, reference)
    check_mask_predictor(llm.predictor)


def test_diffullama_loads_where_its_adapter_and_its_mask_are_named(tmp_path: Path) -> None:
    folder = str(DIFFULLAMA.write(tmp_path))
    assert not any(predictor_of(family).claims(folder) for family in FAMILIES.values())
    with pytest.raises(
        UnknownNameError, match="--adapter diffullama loads with the id of its mask"
    ):
        LLM(folder)
    with pytest.raises(CheckpointError, match="names no mask token"):
        LLM(folder, adapter="diffullama")
    llm = LLM(folder, adapter="diffullama", mask_token_id=67)
    assert llm.predictor.info.special.mask_id == 67
    assert_agrees(llm, DIFFULLAMA.reference(Path(folder)))


def test_diffugpt_loads_where_its_adapter_and_its_mask_are_named(tmp_path: Path) -> None:
    folder = reference_gpt2.write_checkpoint(tmp_path / "diffugpt-s")
    with pytest.raises(UnknownNameError, match="--adapter diffugpt loads with the id of its mask"):
        LLM(str(folder))
    llm = LLM(str(folder), adapter="diffugpt", mask_token_id=67)
    assert_agrees(llm, reference_gpt2.ReferenceGpt2(folder))
