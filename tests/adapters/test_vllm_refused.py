"""Models that vLLM would not run, or would run with the wrong attention, are refused by name before
an engine starts; none of this needs vLLM.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dise.in_vllm import CONFIGS
from dise_adapters.checkpoint.hub import read_config
from dise_adapters.vllm.families import predictor_for, refuse_unrunnable
from dise_core import LLM, InputError
from dise_core.plugins.discovery import installed_plugins
from tests.published import (
    A2D_QWEN2,
    A2D_QWEN3,
    FAST_DLLM,
    ILLADA,
    LLADA2,
    LLADA_MOE,
    OPEN_DCODER,
    SDAR,
)
from tests.tiny_format import Published


@pytest.mark.parametrize(
    ("published", "why"),
    [
        (SDAR, "reads blocks of 4, and vLLM has no such attention"),
        (LLADA2, "reads blocks of 32"),
        (FAST_DLLM, "reads blocks of 16"),
        (A2D_QWEN3, "reads blocks of 32"),
        (LLADA_MOE, r"is of a format that vLLM has no class for \(LLaDA-MoE"),
        (OPEN_DCODER, r"is of a format that vLLM has no class for \(Open-dCoder"),
    ],
)
def test_what_vllm_cannot_run_is_refused(tmp_path: Path, published: Published, why: str) -> None:
    folder = published.write(tmp_path)
    with pytest.raises(InputError, match=f"{why}.*: it needs the transformers engine") as caught:
        LLM(str(folder), engine="vllm")
    assert caught.value.parameter == "engine"


@pytest.mark.parametrize("published", [A2D_QWEN2, ILLADA, replace(A2D_QWEN3, called="mdlm")])
def test_what_vllm_runs_is_not_refused(tmp_path: Path, published: Published) -> None:
    folder = published.write(tmp_path)
    fields = read_config(str(folder)) or {}
    kind = predictor_for(installed_plugins(), fields, str(folder))
    assert kind is not None
    refuse_unrunnable(kind.family, kind.family.attention_of(fields, (str(folder),)), "it")
    assert CONFIGS[str(fields["model_type"])](**fields).is_causal is False


def test_a_server_does_not_serve_the_twin_in_blocks(tmp_path: Path) -> None:
    fields = A2D_QWEN3.fields(_name_or_path="dllm-hub/Qwen3-0.6B-diffusion-bd3lm-v0.1")
    with pytest.raises(InputError, match="reads blocks of 32"):
        CONFIGS["a2d-qwen3"](**fields)
