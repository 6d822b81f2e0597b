"""What runs on a GPU mixes no devices, does not wait inside a pass, and fits what is planned."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dise_adapters.local.decoder.layer import Experts, Layer
from dise_adapters.local.loading.fits import ALLOCATED
from dise_adapters.local.loading.quantization import Quantizer, _tell
from dise_core import Read, TokenLogProbs
from tests import full_size
from tests.pretended_gpu import Pass

Heads = Callable[[Layer, Tensor], Tensor]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LLaDA-8B with two of its layers."""
    return full_size.write(tmp_path_factory.mktemp("llada"), "LLaDA-8B", layers=2)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of few words, whose integers are made, of zeros, on the host in little time."""
    words = {
        "vocab_size": 8192,
        "embedding_size": 8192,
        "mask_token_id": 8000,
        "eos_token_id": 8001,
    }
    sizes = {"d_model": 1024, "n_heads": 8, "mlp_hidden_size": 3072}
    return full_size.write(
        tmp_path_factory.mktemp("narrow"), "LLaDA-8B", layers=2, **words, **sizes
    )


def passed(folder: Path) -> tuple[Pass, int]:
    """Return what reading two texts asks of the GPU, and the bytes planned for it."""
    texts = [np.arange(length) for length in (300, 512)]
    reads = [Read(ids, np.arange(100, 300), TokenLogProbs(ids[100:300])) for ids in texts]
    with full_size.loaded(folder) as (llm, gpu, planned):
        llm.predictor.read(reads)
    return gpu.now, planned


def test_a_pass_is_without_fault_and_fits_what_is_planned_for_it(folder: Path) -> None:
    seen, planned = passed(folder)
    assert seen.faults == []
    assert 0 < seen.peak <= planned
    assert seen.kernels > 40


def test_short_texts_of_unequal_lengths_take_more_than_states_and_fit(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    texts = [draw.integers(0, full_size.WORDS, n) for n in draw.integers(68, 128, 165)]
    assert 16_000 < sum(map(len, texts)) <= 16_384
    reads = [Read(ids, np.arange(32), TokenLogProbs(ids[:32])) for ids in texts]
    dream = full_size.write(tmp_path, "Dream-7B", layers=2)
    with full_size.loaded(dream) as (llm, gpu, planned):
        llm.predictor.read(reads)
    assert planned / ALLOCATED < gpu.now.peak <= planned


def with_an_index_of_the_host(heads: Heads, layer: Layer, states: Tensor) -> Tensor:
    return heads(layer, states)[torch.arange(len(states))]


def with_a_tensor_of_the_host(heads: Heads, layer: Layer, states: Tensor) -> Tensor:
    result = heads(layer, states)
    return result + torch.ones(result.shape[-1], dtype=result.dtype)


def in_float32(heads: Heads, layer: Layer, states: Tensor) -> Tensor:
    return heads(layer, states).float().to(states.dtype)


def with_a_number_for_the_host(heads: Heads, layer: Layer, states: Tensor) -> Tensor:
    return heads(layer, states) * float(states.amax())


def by_a_mask(heads: Heads, layer: Layer, states: Tensor) -> Tensor:
    result = heads(layer, states)
    result[states[:, 0] > 0] = 0
    return result


def by_a_copy(heads: Heads, layer: Layer, states: Tensor) -> Tensor:
    return heads(layer, states) * torch.ones(1).to(states.device, states.dtype)


FAULTS = {
    with_an_index_of_the_host: r"index of \[\d+\] on the host: local/decoder/own.py",
    with_a_tensor_of_the_host: r"add of \[128\] on the host",
    in_float32: "makes float32 of 16 bits",
    with_a_number_for_the_host: "_local_scalar_dense waits",
    by_a_mask: "index_put_ by a mask waits",
    by_a_copy: "a copy in waits for the pass",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_that_is_put_into_a_layer_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    heads = Layer.heads
    monkeypatch.setattr(Layer, "heads", lambda layer, states: fault(heads, layer, states))
    seen, _ = passed(folder)

    assert any(re.search(FAULTS[fault], found) for found in seen.faults), seen.faults


def test_attention_is_planned_by_cudnn_for_long_texts_of_whole_tiles_alone(folder: Path) -> None:
    planned = {}
    with full_size.loaded(folder) as (llm, gpu, _):
        for length in (512, 2048, 2049, 2176):
            ids = np.arange(length) % full_size.WORDS
            llm.predictor.read([Read(ids, np.arange(32), TokenLogProbs(ids[:32]))])
            planned[length] = gpu.now.plans
    assert planned == {512: 0, 2048: 2, 2049: 0, 2176: 2}
    assert torch.backends.cuda.cudnn_sdp_enabled()


def test_a_stream_of_requests_repeats_its_shapes_of_attention(folder: Path) -> None:
    with full_size.loaded(folder, max_num_seqs=1) as (llm, gpu, _):
        full_size.generate(llm, [40, 50, 61], "exact", 64)
    shapes = [seen.shapes for seen in gpu.passes]
    assert len(shapes) > 90
    assert sum(shapes) == 2 * 3  # of each length: all its tokens, and 32 rows


def test_windows_of_equal_texts_copy_no_cached_keys(folder: Path) -> None:
    with full_size.loaded(folder) as (llm, gpu, _):
        full_size.generate(llm, [100] * 5, "dual", 32)
    windows = [seen for seen in gpu.passes if seen.tokens == 5 * 32]
    assert len(windows) > 10
    assert {seen.cached for seen in windows} == {0}


def test_windows_count_as_what_they_run_and_not_as_their_texts(folder: Path) -> None:
    with full_size.loaded(folder, max_batch_tokens=2048) as (llm, gpu, planned):
        full_size.generate(llm, [900 + n for n in range(8)], "dual", 32)
    assert [(seen.reads, seen.tokens) for seen in gpu.passes].count((8, 8 * 32)) > 5
    assert max(seen.tokens for seen in gpu.passes) <= 2048
    assert max(seen.peak for seen in gpu.passes) <= planned


def test_integers_on_a_gpu_are_told_once_to_save_no_time(
    narrow: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _tell.cache_clear()
    for _ in range(2):
        with full_size.loaded(narrow, quantization="int8"):
            pass
    assert caplog.messages == ["quantization='int8' saves memory on a GPU, not time."]


def test_the_mask_of_blocks_is_made_on_the_device(tmp_path: Path) -> None:
    ids = np.arange(4096) % full_size.WORDS
    with full_size.loaded(full_size.write(tmp_path, "SDAR-8B-b32", layers=2)) as (llm, gpu, _):
        llm.predictor.read([Read(ids, np.arange(4064, 4096), TokenLogProbs(ids[-32:]))])
    assert gpu.now.faults == []
    assert gpu.now.copies["in"][1] < ids.nbytes * 8  # a mask has 4,096 bytes for each token


def test_integer_weights_are_multiplied_without_a_wait(narrow: Path) -> None:
    ids = np.arange(512)
    kernels = []
    for quantization in (None, "int8"):
        with full_size.loaded(narrow, quantization=quantization) as (llm, gpu, _):
            llm.predictor.read([Read(ids, np.arange(32), TokenLogProbs(ids[:32]))])
        assert gpu.now.faults == []
        kernels.append(gpu.now.kernels)
    assert kernels[1] < kernels[0] + 100


@pytest.mark.parametrize("method", ["int8", "int4"])
def test_experts_of_integers_are_asked_without_a_wait(tmp_path: Path, method: Any) -> None:
    ids = np.arange(512)
    folder = full_size.write(tmp_path, "LLaDA2.0-mini", layers=2, num_experts=64)
    with full_size.loaded(folder) as (llm, gpu, planned):
        layers: list[Any] = llm.predictor._reader._body._layers
        experts = layers[1]._feed_forward
        layers[1]._feed_forward = Experts(experts._block, Quantizer(method).linear)
        llm.predictor.read([Read(ids, np.arange(32), TokenLogProbs(ids[:32]))])
    assert gpu.now.faults == []
    assert gpu.now.kernels < 250
    assert gpu.now.peak < planned / 4  # of a quarter of the experts
