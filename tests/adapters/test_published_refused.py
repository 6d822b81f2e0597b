"""What a published format's config.json, weights and tokenizer may not say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dise_core import LLM, InputError
from dise_core.errors import CheckpointError, ModelError, UnknownNameError
from tests.published import ILLADA, LLADA2, LLADA_MOE, SDAR_MOE
from tests.reference_backbone import edited
from tests.tiny_format import Published


def test_the_successor_that_edits_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = replace(LLADA2, called="LLaDA2.2-mini").write(tmp_path)
    with pytest.raises(UnknownNameError, match=r"LLaDA2.2 \(LLaDA2.2-mini\) deletes and splits"):
        LLM(str(folder))
    with pytest.raises(CheckpointError, match="deletes and splits tokens"):
        LLM(str(folder), adapter="llada2")


UP = "model.layers.1.mlp.experts.7.up_proj.weight"
FUSED = "model.layers.1.attention.query_key_value.weight"
BIAS = "model.layers.2.mlp.gate.expert_bias"


@pytest.mark.parametrize("published", [LLADA2, LLADA_MOE, SDAR_MOE])
@pytest.mark.parametrize(
    ("lost", "added", "rows"), [(UP, None, 0), (None, UP.replace(".7.", ".12."), 20), (UP, UP, 19)]
)
def test_a_mixture_must_have_each_expert(
    tmp_path: Path, published: Published, lost: str | None, added: str | None, rows: int
) -> None:
    folder = published.write(tmp_path)
    change(folder, lost, added, rows)
    with pytest.raises(ModelError, match=f"cannot load {folder}: .*conversion"):
        LLM(str(folder))


@pytest.mark.parametrize(
    ("lost", "added", "rows", "told"),
    [
        (BIAS, None, 0, r"lacks weights: .*e_score_correction_bias"),
        (FUSED, FUSED, 159, rf"{FUSED} of \[159, 48\], not of 80 \+ 40 \+ 40"),
    ],
)
def test_weights_that_no_conversion_takes_are_named(
    tmp_path: Path, lost: str | None, added: str | None, rows: int, told: str
) -> None:
    folder = LLADA2.write(tmp_path)
    change(folder, lost, added, rows)
    with pytest.raises(CheckpointError, match=told):
        LLM(str(folder))


def change(folder: Path, lost: str | None, added: str | None, rows: int) -> None:
    """Take a weight away from the checkpoint, then add one of these rows."""
    with edited(folder) as weights:
        weights.pop(lost or "", None)
        if added is not None:
            weights[added] = torch.ones(rows, 48)


def test_the_mask_of_a_format_is_checked_against_all_that_name_one(tmp_path: Path) -> None:
    unnamed = replace(ILLADA, tokens={2: "</s>"})
    assert LLM(str(unnamed.write(tmp_path / "a"))).predictor.info.special.mask_id == 5
    other = replace(ILLADA, tokens={2: "</s>", 7: "<[MASK]>"}).write(tmp_path / "b")
    with pytest.raises(CheckpointError, match=r"7 by the vocabulary's <\[MASK\]>, 5 by every publ"):
        LLM(str(other))
    with pytest.raises(CheckpointError, match=r"9 by config\.json's mask_token_id, 5 by the voc"):
        LLM(str(ILLADA.write(tmp_path / "c", mask_token_id=9)))
    with pytest.raises(InputError, match="mask_token_id=3 is not the mask: 5 by"):
        LLM(str(ILLADA.write(tmp_path / "d")), mask_token_id=3)


def test_an_end_token_that_the_vocabulary_alone_names_pads(tmp_path: Path) -> None:
    special = LLM(str(LLADA2.write(tmp_path))).predictor.info.special
    assert (special.eos_id, special.eos_ids) == (60, {60, 61})
