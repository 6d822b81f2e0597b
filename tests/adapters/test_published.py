"""Every published format of diffusion models against an independent model, at a tiny size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dise_adapters.plugin import FAMILIES
from dise_adapters.predictor import predictor_of
from dise_core import LLM, Distribution, InputError, Read
from dise_core.errors import CheckpointError, UnknownNameError
from dise_core.models.attention import BIDIRECTIONAL, BlockCausal
from dise_core.plans.reading import CacheHint, CacheSlot
from dise_core.testing import check_mask_predictor
from tests import reference_gpt2, reference_modernbert
from tests.adapters.agreement import ROUNDED, assert_agrees, random_texts
from tests.published import DIFFULLAMA, LLADA2, PUBLISHED, SDAR_MOE
from tests.reference_modernbert import ReferenceModernBert
from tests.tiny_format import Published

TEXTS = random_texts(70, 32, 1, 37, 90)
"""All but the first end inside a block, whatever its length."""


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_format_agrees_with_an_independent_model(
    tmp_path: Path, name: str, implementation: str
) -> None:
    published = PUBLISHED[name]
    folder = published.write(tmp_path)
    claiming = [
        each for each, family in FAMILIES.items() if predictor_of(family).claims(str(folder))
    ]
    assert claiming == [published.family]
    llm = LLM(str(folder), attn_implementation=implementation)
    info = llm.predictor.info
    assert (info.attention, info.special.mask_id) == (published.attention, published.mask_id)
    assert info.special.eos_id == published.eos_id
    assert_agrees(llm, published.reference(folder), TEXTS)


ELSEWHERE = {
    "llada": "test_llada.py", "dream": "test_dream.py", "llama": "test_causal.py",
    **dict.fromkeys(("masked-lm", "diffullama", "diffugpt"), "below"),
    "diffusion-gemma": "test_diffusion_gemma.py",
}  # fmt: skip
"""Where other families are compared with an independent model."""


def test_every_family_is_compared_with_an_independent_model() -> None:
    """For "random" is what `dise models` says that each was checked on, with no more evidence."""
    assert {each.family for each in PUBLISHED.values()} | ELSEWHERE.keys() == FAMILIES.keys()


@pytest.mark.parametrize("published", [SDAR_MOE, LLADA2])
def test_experts_whose_rows_torch_cannot_group_are_computed_too(
    tmp_path: Path, published: Published
) -> None:
    uneven = replace(published, shape=replace(published.shape, expert_hidden=18))
    folder = uneven.write(tmp_path, moe_intermediate_size=18)
    assert_agrees(LLM(str(folder)), uneven.reference(folder), TEXTS)
    [reading] = LLM(str(folder), dtype="bfloat16").predictor.read(
        [Read(TEXTS[0], np.arange(32), Distribution())]
    )
    assert np.isfinite(reading.logprobs).all()


@pytest.mark.parametrize("name", ["sdar", "llada2", "rnd1", "fast-dllm-v2"])
def test_a_published_format_keeps_the_contract_of_a_predictor(tmp_path: Path, name: str) -> None:
    check_mask_predictor(LLM(str(PUBLISHED[name].write(tmp_path))).predictor)


@pytest.mark.parametrize("name", ["stable-diffcoder", "stable-diffcoder of old", "open-dcoder"])
def test_what_looks_like_a_judge_is_none_even_when_its_adapter_is_named(
    tmp_path: Path, name: str
) -> None:
    folder = str(PUBLISHED[name].write(tmp_path))
    with pytest.raises(InputError, match="is not auto-regressive"):
        LLM("countdown", judge=folder)
    with pytest.raises(CheckpointError, match="is refused: it is a diffusion model by its"):
        LLM(folder, adapter="llama")


def test_a_modernbert_that_chats_agrees_with_an_independent_one(tmp_path: Path) -> None:
    folder = reference_modernbert.write_checkpoint(tmp_path / "model")
    llm, reference = LLM(str(folder)), ReferenceModernBert(folder)
    assert llm.predictor.info.attention == BIDIRECTIONAL
    assert llm.predictor.info.special.mask_id == reference_modernbert.MASK
    assert llm.predictor.info.special.eos_ids == {62, 65}
    assert_agrees(llm, reference, TEXTS)
    check_mask_predictor(llm.predictor)


def test_diffullama_loads_where_its_adapter_and_its_mask_are_named(tmp_path: Path) -> None:
    folder = str(DIFFULLAMA.write(tmp_path))
    assert not any(predictor_of(family).claims(folder) for family in FAMILIES.values())
    with pytest.raises(
        UnknownNameError, match="--model-args adapter=diffullama,mask_token_id=ID loads"
    ):
        LLM(folder)
    with pytest.raises(CheckpointError, match="names no mask token"):
        LLM(folder, adapter="diffullama")
    llm = LLM(folder, adapter="diffullama", mask_token_id=67)
    assert llm.predictor.info.special.mask_id == 67
    assert_agrees(llm, DIFFULLAMA.reference(Path(folder)), TEXTS)


def test_diffugpt_loads_where_its_adapter_and_its_mask_are_named(tmp_path: Path) -> None:
    folder = reference_gpt2.write_checkpoint(tmp_path / "diffugpt-s")
    with pytest.raises(
        UnknownNameError, match="--model-args adapter=diffugpt,mask_token_id=ID loads"
    ):
        LLM(str(folder))
    llm = LLM(str(folder), adapter="diffugpt", mask_token_id=67)
    assert_agrees(llm, reference_gpt2.ReferenceGpt2(folder), TEXTS)


BLOCKS = {name: each for name, each in PUBLISHED.items() if isinstance(each.attention, BlockCausal)}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_against_cached_ones_is_answered_exactly(tmp_path: Path, name: str) -> None:
    published = BLOCKS[name]
    folder, length = published.write(tmp_path), published.attention.length
    predictor, slot = LLM(str(folder)).predictor, CacheSlot()
    ids = np.random.default_rng(2).integers(0, 70, 3 * length)
    start = 2 * length
    known = Read(ids[:start], np.arange(start), Distribution(), cache=CacheHint(slot, None, 96))
    window = CacheHint(slot, (start, len(ids)), 96)
    predictor.read([known])
    [reading] = predictor.read(
        [Read(ids, np.arange(start, len(ids)), Distribution(), cache=window)]
    )
    expected = published.reference(folder).logprobs(ids.tolist())[start:].numpy()
    assert reading.is_exact
    assert reading.share < 0.5
    assert np.abs(reading.logprobs - expected).max() < ROUNDED
