"""How a checkpoint tells the attention of its model and the length of its blocks, and what happens
where it does not.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dise_core import LLM, InputError
from dise_core.errors import CheckpointError
from dise_core.models.attention import BIDIRECTIONAL, Attention, BlockCausal
from tests.published import A2D_QWEN3, FAST_DLLM, ILLADA, LLADA2, SDAR
from tests.tiny_format import Published


def attention(folder: Path, block_size: int | None = None) -> Attention:
    return LLM(str(folder), block_size=block_size).predictor.info.attention


@pytest.mark.parametrize(
    ("published", "called", "expected"),
    [
        (SDAR, "SDAR-4B-Chat", BlockCausal(4)),
        (SDAR, "SDAR-8B-Chat-b16", BlockCausal(16)),
        (SDAR, "my-sdar-1.7B-chat-b64-tuned", BlockCausal(64)),
        (SDAR, "TraDo-8B-Thinking", BlockCausal(4)),
        (A2D_QWEN3, "Qwen3-0.6B-diffusion-bd3lm-v0.1", BlockCausal(32)),
        (A2D_QWEN3, "Qwen3-0.6B-diffusion-mdlm-v0.1", BIDIRECTIONAL),
        (LLADA2, "some-model", BlockCausal(32)),
    ],
)
def test_the_name_tells_where_config_json_does_not(
    tmp_path: Path, published: Published, called: str, expected: Attention
) -> None:
    assert attention(replace(published, called=called).write(tmp_path)) == expected
    unnamed = replace(published, called="model").write(tmp_path, _name_or_path=f"org/{called}")
    assert attention(unnamed) == expected
    snapshot = tmp_path / f"models--org--{called}" / "snapshots" / "0123abcd"
    assert attention(published.write_into(snapshot)) == expected


def test_a_copy_that_tells_nothing_is_refused_and_loads_as_the_user_says(tmp_path: Path) -> None:
    copy = replace(A2D_QWEN3, called="some-model").write(tmp_path)
    told = r"neither bd3lm nor mdlm: give block_size \(--model-args block_size=32\).*, or 0 for"
    with pytest.raises(InputError, match=told) as caught:
        LLM(str(copy))
    assert caught.value.parameter == "block_size"
    assert [attention(copy, 32), attention(copy, 0)] == [BlockCausal(32), BIDIRECTIONAL]
    with pytest.raises(InputError, match="is of a format that attends in blocks"):
        LLM(str(replace(SDAR, called="other").write(tmp_path)), block_size=0)


def test_config_json_tells_the_length(tmp_path: Path) -> None:
    assert attention(FAST_DLLM.write(tmp_path, bd_size=8)) == BlockCausal(8)
    unnamed = replace(SDAR, called="model").write(tmp_path, block_size=16)
    assert attention(unnamed) == BlockCausal(16)
    assert attention(unnamed, 16) == BlockCausal(16)


def test_the_option_is_for_checkpoints_that_do_not_say(tmp_path: Path) -> None:
    unnamed = replace(SDAR, called="model").write(tmp_path)
    told = r"several lengths: give block_size \(--model-args block_size=32\)"
    with pytest.raises(InputError, match=told):
        LLM(str(unnamed))
    assert attention(unnamed, 16) == BlockCausal(16)
    assert attention(LLADA2.write(tmp_path), 64) == BlockCausal(64)


@pytest.mark.parametrize(
    ("published", "called", "named"),
    [
        (SDAR, "SDAR-4B-Chat-b8", r"block_size=5 is not that of .*: blocks of 8 by its name"),
        (FAST_DLLM, "model", "blocks of 16 by config.json's bd_size"),
        (A2D_QWEN3, "x-mdlm", r"attends to the whole text \(bidirectional attention by its name"),
        (ILLADA, "model", "attends to the whole text, so it has no blocks: leave out block_size"),
    ],
)
def test_an_option_that_contradicts_the_checkpoint_is_refused(
    tmp_path: Path, published: Published, called: str, named: str
) -> None:
    folder = replace(published, called=called).write(tmp_path)
    with pytest.raises(InputError, match=named) as caught:
        LLM(str(folder), block_size=5)
    assert caught.value.parameter == "block_size"


def test_sources_that_disagree_are_named(tmp_path: Path) -> None:
    folder = replace(SDAR, called="SDAR-4B-b8").write(tmp_path, block_size=16)
    with pytest.raises(
        CheckpointError, match=r"blocks of 16 by config.json's block_size, blocks of 8"
    ):
        LLM(str(folder))


def test_a_causal_verifier_in_sdars_format_is_refused(tmp_path: Path) -> None:
    folder = replace(SDAR, called="uno-qwen3-8B").write(tmp_path)
    with pytest.raises(CheckpointError, match="auto-regressive verifier in SDAR's format"):
        LLM(str(folder), adapter="sdar", block_size=4)
