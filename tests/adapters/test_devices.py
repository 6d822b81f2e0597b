"""What a GPU would run, run on a CPU; how much is free, and what is planned from it."""

import logging
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from dise_adapters.local import devices
from dise_adapters.local.devices import choose_dtype
from dise_adapters.local.loading import fits, loader
from dise_core import LLM, Distribution, InputError, Read, Reading, SamplingParams
from dise_core.models.attention import BIDIRECTIONAL
from dise_core.params.engine import EngineConfig
from dise_core.plans.reading import Guidance
from tests.reference_llada import checkpoint

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "model", n_heads=4, n_kv_heads=2)


def answers(folder: Path, **options: object) -> list[Reading]:
    ids = np.arange(2, 42)
    reads = [Read(ids[:n], np.arange(n), Distribution()) for n in (40, 33, 6, 40)]
    reads.append(Read(ids, np.arange(9), Distribution(), guidance=Guidance(ids[::-1].copy(), 1.5)))
    return list(LLM(str(folder), dtype="float32", **options).predictor.read(reads))  # type: ignore[arg-type]


@pytest.mark.parametrize("implementation", [None, "eager"])
def test_a_gpus_ways_give_a_cpus_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, implementation: str | None
) -> None:
    if implementation is not None:
        pytest.importorskip("accelerate")
    options = {} if implementation is None else {"attn_implementation": implementation}
    expected = answers(folder, **options)
    monkeypatch.setattr(devices, "LIKE_A_GPU", True)
    for found, exact in zip(answers(folder, **options), expected, strict=True):
        np.testing.assert_allclose(found.logprobs, exact.logprobs, atol=1e-4)
    assert choose_dtype("auto", CPU) == torch.bfloat16


TOKEN = 2 * 2 * 2 * 16 * 4
"""Layers, keys and values, key-value heads, head dimension, bytes."""


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(loader, "free_bytes", lambda _: size)


def working(folder: Path) -> int:
    """Four copies of the states, the outputs of the seven linear layers, three of the logits."""
    outputs = 64 + 32 + 32 + 64 + 96 + 96 + 64
    rows = max(1, 2**25 // 8 // 52)
    return 2048 * (4 * 64 + outputs) * 4 + rows * 52 * 3 * 4


def test_a_cache_that_cannot_fit_is_refused_before_any_request(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, working(folder) + 100 * TOKEN)
    assert LLM(str(folder), max_cache_tokens=100).predictor.room.num_free == 100  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"max_cache_tokens=101 .* at most 100 tokens fit"):
        LLM(str(folder), max_cache_tokens=101)


def test_without_a_number_the_cache_takes_what_is_free(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    free(monkeypatch, working(folder) + 77 * TOKEN)
    with caplog.at_level(logging.WARNING):
        assert LLM(str(folder)).predictor.room.num_free == 77  # type: ignore[union-attr]
    assert "max_cache_tokens is 77, since no more memory is free" in caplog.text
    free(monkeypatch, 2**40)
    assert LLM(str(folder)).predictor.room.num_free == 16384  # type: ignore[union-attr]
    free(monkeypatch, 0)
    params = SamplingParams(max_tokens=8, cache="prefix", block_length=4)
    [answer] = LLM(str(folder)).generate([[3, 4, 5]], params)
    assert len(answer.outputs[0].token_ids) == 8


@pytest.mark.parametrize(
    ("device", "gib", "tokens"),
    [("cuda", 4, 8192), ("cuda", 10, 16384), ("cuda", 64, 65536), ("cuda", 512, 131072),
     ("cpu", 64, 16384)],
)  # fmt: skip
def test_on_cuda_half_of_the_free_memory_is_room_for_texts(
    device: str, gib: int, tokens: int
) -> None:
    of_llada = (32, 32, 128)  # half a MiB a token in 16 bits
    example = Mock(device=torch.device(device), element_size=lambda: 2)
    config = EngineConfig(max_batch_tokens=16384)
    found = fits.cache_tokens(
        config, BIDIRECTIONAL, of_llada, example, 3 * 2**30, (gib + 3) * 2**30
    )
    assert found == (tokens, 0)


def test_a_judge_is_loaded_in_its_own_type(checkpoint_of: Callable[[str], Path]) -> None:
    llm = LLM("countdown", judge=checkpoint_of("llama"), judge_dtype="bfloat16")
    types = {
        name: predictor._reader._body._embed.keywords["weight"].dtype  # type: ignore[attr-defined]
        for name, predictor in llm.planner.predictors.items()
    }
    assert types == {"target": torch.float32, "judge": torch.bfloat16}


def test_a_judge_has_a_type_and_a_device_of_its_own(folder: Path) -> None:
    config = EngineConfig(
        device="cpu", dtype="float32", judge_dtype="bfloat16", quantization="int8", block_size=4
    )
    its = config.for_judge()
    assert (its.device, its.dtype) == ("cpu", "bfloat16")
    assert (its.quantization, its.block_size) == (None, None)
    assert EngineConfig(judge_device="cuda:1").for_judge().device == "cuda:1"
    with pytest.raises(InputError, match="judge_device and judge_dtype need a judge"):
        LLM("countdown", judge_dtype="bfloat16")
