"""Families beside LLaDA, Dream and judges, how a checkpoint's family and mask are found, and which
checkpoints are refused by name.
"""

from pathlib import Path

import pytest

from dise_adapters.families.family import NOT_COVERED
from dise_adapters.plugin import FAMILIES
from dise_adapters.predictor import predictor_of
from dise_core import LLM
from dise_core.errors import CheckpointError, UnknownNameError
from dise_core.testing import check_mask_predictor
from tests import reference_a2d, reference_llada
from tests.adapters.agreement import assert_agrees, random_texts
from tests.reference_a2d import ReferenceQwen3
from tests.tiny_format import described, edit

TEXTS = random_texts(60, 1, 2, 9, 40, 96)


@pytest.mark.parametrize("changes", [{}, {"num_key_value_heads": 4}, {"head_dim": 16}])
def test_a_qwen3_with_full_attention_agrees_with_an_independent_one(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    folder = reference_a2d.write_checkpoint(tmp_path, **changes)
    llm = LLM(str(folder))
    assert llm.predictor.info.special.mask_id == reference_a2d.MASK
    assert llm.predictor.info.special.eos_ids == {reference_a2d.PAD, reference_a2d.IM_END}
    assert_agrees(llm, ReferenceQwen3(folder), TEXTS)
    check_mask_predictor(llm.predictor)


@pytest.mark.parametrize("name", ["WeDLMForCausalLM", *NOT_COVERED])
@pytest.mark.parametrize("is_class", [False, True])
def test_a_diffusion_model_that_is_not_covered_is_told_by_name_and_nobodys(
    tmp_path: Path, name: str, is_class: bool
) -> None:
    fields = {"architectures": [name]} if is_class else {"model_type": name}
    folder = described(tmp_path, **{"model_type": "llada", **fields})
    assert not any(predictor_of(family).claims(folder) for family in FAMILIES.values())
    with pytest.raises(UnknownNameError, match="it is a diffusion model that is not covered"):
        LLM(folder)
    with pytest.raises(CheckpointError, match=r"is refused: it is a diffusion model that is not"):
        LLM(folder, adapter="llada")


def test_architectures_decide_before_the_model_type(tmp_path: Path) -> None:
    both = {"model_type": "llada", "architectures": ["DreamModel"]}
    folder = described(tmp_path, **both)
    claiming = [name for name, each in FAMILIES.items() if predictor_of(each).claims(folder)]
    assert claiming == ["dream"]


def test_a_mask_that_only_the_user_names_is_taken(tmp_path: Path) -> None:
    folder = reference_llada.checkpoint(tmp_path, gain=0.7)
    edit(folder / "config.json", mask_token_id=None)
    assert LLM(str(folder)).predictor.info.special.mask_id == 49  # as the tokenizer says
    tokenizer = (folder / "tokenizer.json").read_text().replace("<|mdm_mask|>", "<|none|>")
    (folder / "tokenizer.json").write_text(tokenizer)
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}'
    )
    with pytest.raises(CheckpointError, match=r"no mask token.*--model-args mask_token_id=ID"):
        LLM(str(folder))
    assert LLM(str(folder), mask_token_id=47).predictor.info.special.mask_id == 47


@pytest.mark.parametrize("scaling", [None, False, {}, {"rope_type": "default"}, {"type": None}])
def test_a_scaling_that_scales_nothing_is_taken(tmp_path: Path, scaling: object) -> None:
    folder = reference_a2d.write_checkpoint(tmp_path, rope_scaling=scaling)
    assert_agrees(LLM(str(folder)), ReferenceQwen3(folder), TEXTS)
