"""int8 and int4 weights: the answers are those of weights that were rounded by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dise_adapters.local import devices
from dise_adapters.local.loading.quantization import Quantizer
from dise_core import LLM, Distribution, InputError, Read
from tests import tiny_causal
from tests.published import LLADA2
from tests.reference_llada import default_config, random_weights, write_checkpoint

CONFIG = default_config()
IDS = np.arange(2, 42)


def logprobs(folder: Path, **options: object) -> np.ndarray:
    llm = LLM(str(folder), **options)  # type: ignore[arg-type]
    [reading] = llm.predictor.read([Read(IDS, np.arange(40), Distribution())])
    return reading.logprobs


def in_int8(weight: Tensor) -> Tensor:
    """One scale a row: its largest weight, either way, is at 127.5 steps."""
    scale = weight.abs().amax(1, keepdim=True) / 127.5
    return (weight * (1 / scale)).round().clamp(-128, 127) * scale


def in_int4(weight: Tensor) -> Tensor:
    """Sixteen even steps from the least to the greatest weight of each block of a row."""
    size = next(size for size in (128, 64, 32) if weight.shape[1] % size == 0)
    blocks = weight.reshape(-1, size)
    least, most = blocks.amin(1, keepdim=True), blocks.amax(1, keepdim=True)
    scale = (most - least) / 15
    return (((blocks - least) / scale).round().clamp(0, 15) * scale + least).view(weight.shape)


@pytest.mark.parametrize(
    ("kind", "rounded", "tolerance"), [("int8", in_int8, 2e-4), ("int4", in_int4, 2e-3)]
)
def test_the_decoders_linear_layers_are_rounded_and_nothing_else(
    kind: str, rounded: Callable[[Tensor], Tensor], tolerance: float, tmp_path: Path
) -> None:
    pytest.importorskip("torchao")
    weights = random_weights(CONFIG)
    by_hand = {
        name: rounded(weight) if ".blocks." in name and weight.ndim == 2 else weight
        for name, weight in weights.items()
    }
    plain = write_checkpoint(tmp_path / "plain", CONFIG, weights)
    expected = logprobs(write_checkpoint(tmp_path / "rounded", CONFIG, by_hand))
    found = logprobs(plain, quantization=kind)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    assert np.abs(logprobs(plain) - found).max() > 5 * tolerance, "it made no difference at all"


def test_a_batch_gets_what_its_texts_get_alone(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    llm = LLM(str(write_checkpoint(tmp_path, CONFIG, random_weights(CONFIG))), quantization="int4")
    reads = [Read(IDS[:n], np.arange(n), Distribution()) for n in (7, 40, 23)]
    for together, read in zip(llm.predictor.read(reads), reads, strict=True):
        [alone] = llm.predictor.read([read])
        np.testing.assert_allclose(together.logprobs, alone.logprobs, atol=1e-4)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_experts_are_rounded_one_by_one(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    shape = replace(LLADA2.shape, width=64, expert_hidden=32, hidden=96, head_dim=16, rotary=8)
    sizes = {"moe_intermediate_size": 32, "head_dim": 16, "rotary_dim": 8}
    published = replace(LLADA2, shape=shape, config={**LLADA2.config, **sizes})
    folder = published.write(tmp_path)
    plain, found = logprobs(folder), logprobs(folder, quantization=kind)
    rounded = in_int8 if kind == "int8" else in_int4
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if ".layers." in name and weight.ndim == 2 and not name.endswith("mlp.gate.weight"):
            weights[name] = rounded(weight)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    expected = logprobs(folder)
    np.testing.assert_allclose(np.median(np.abs(found - expected)), 0, atol=1e-3)
    assert np.abs(plain - found).mean() > 5 * np.abs(found - expected).mean()


def test_a_model_without_linear_layers_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    folder = tiny_causal.checkpoint(tmp_path, tiny_causal.gpt2())
    with pytest.raises(InputError, match=r"covers linear layers, which are only 0% of the decoder"):
        LLM(folder, quantization="int8")


def test_rows_that_no_block_divides_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    config = default_config(d_model=40)
    folder = write_checkpoint(tmp_path, config, random_weights(config))
    with pytest.raises(InputError, match="needs rows of a multiple of 32 weights, not 40"):
        LLM(str(folder), quantization="int4")


def test_int4_on_a_gpu_wants_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "LIKE_A_GPU", True)
    with pytest.raises(InputError, match="computes in bfloat16 alone on a GPU"):
        Quantizer("int4", torch.device("cpu"), torch.float32)


def test_a_model_that_transformers_runs_is_quantized_too(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    folder = write_checkpoint(tmp_path, CONFIG, random_weights(CONFIG))
    own = logprobs(folder, quantization="int8")
    theirs = logprobs(folder, quantization="int8", attn_implementation="eager")
    np.testing.assert_allclose(own, theirs, atol=2e-4)
