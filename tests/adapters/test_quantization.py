"""int8 and int4 weights: the answers are those of weights that were rounded by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from dise_adapters.local.decoder import integers
from dise_adapters.local.decoder.integers import Int4Linear, Int8Linear, PackedInt8Linear
from dise_adapters.local.decoder.layer import JoinedExperts
from dise_adapters.local.loading.quantization import Quantizer
from dise_core import LLM, Distribution, InputError, Read
from tests.adapters import agreement
from tests.published import LLADA2
from tests.reference_backbone import edited
from tests.reference_llada import checkpoint, default_config, random_weights, write_checkpoint

CONFIG = default_config()
IDS = np.arange(2, 42)


def logprobs(folder: Path, **options: object) -> np.ndarray:
    return agreement.logprobs(LLM(str(folder), **options))  # type: ignore[arg-type]


def in_int8(weight: Tensor) -> Tensor:
    """One scale a row: its largest weight, either way, is at 127 steps."""
    scale = weight.abs().amax(-1, keepdim=True) / 127
    return (weight / scale).round() * scale


def in_int4(weight: Tensor) -> Tensor:
    """Blocks of 32 in -8 to 7 steps, each a whole number of its row's, of which there are 120.

    Of the numbers below and above the one that would place the block's largest weight at -8,
    the one with the less error.
    """
    row = (weight.abs().amax(1, keepdim=True) / 120).repeat_interleave(weight.shape[1] // 32, 0)
    blocks = weight.reshape(-1, 32)
    falling = blocks.sort(1, descending=True).values  # of two as large, the positive one is first
    exact = falling.gather(1, falling.abs().argmax(1, keepdim=True)) / -8 / row
    least = exact.abs().floor().clamp(1, 14)
    steps = [exact.sign() * whole * row for whole in (least, least + 1)]
    # By the inverse: a weight between two numbers, as those of 16 bits are, goes either way.
    made = torch.stack([(blocks * (1 / step)).round().clamp(-8, 7) * step for step in steps])
    best = (made - blocks).square().sum(2, keepdim=True).argmin(0, keepdim=True)
    return made.take_along_dim(best, 0).view(weight.shape)


@pytest.fixture
def exact_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this a processor that does not multiply integers: states are then not rounded."""
    monkeypatch.setattr(integers, "multiplies_integers", lambda: False)


def linear_by_hand(states: Tensor, integers: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Round states as weights, to 8 bits a row, and multiply integers without any rounding."""
    rows = states.numpy()
    step = np.abs(rows).max(1, keepdims=True) / np.float32(127)
    return (np.rint(rows / step).astype(np.int64) @ integers.T.astype(np.int64)) * (step * scale)


@pytest.mark.usefixtures("exact_states")
@pytest.mark.parametrize(("kind", "rounded"), [("int8", in_int8), ("int4", in_int4)])
def test_the_matrices_are_rounded_and_nothing_else(
    kind: str, rounded: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    weights = random_weights(CONFIG)
    by_hand = {
        name: (rounded if ".blocks." in name else in_int8)(weight) if weight.ndim == 2 else weight
        for name, weight in weights.items()
    }
    plain = write_checkpoint(tmp_path / "plain", CONFIG, weights)
    expected = logprobs(write_checkpoint(tmp_path / "rounded", CONFIG, by_hand))
    found = logprobs(plain, quantization=kind)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-4)
    assert np.abs(logprobs(plain) - found).max() > 1e-2, "it made no difference at all"


def test_rounded_states_change_answers_as_int8_weights_do(
    llada: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = llada
    plain, fast = logprobs(folder), logprobs(folder, quantization="int8")
    monkeypatch.setattr(integers, "multiplies_integers", lambda: False)
    of_weights = np.abs(plain - logprobs(folder, quantization="int8")).mean()
    assert np.abs(plain - fast).mean() < 2 * of_weights


@pytest.mark.skipif(not integers.multiplies_integers(), reason="needs VNNI")
@pytest.mark.parametrize("layer", [Int8Linear, Int4Linear])
@pytest.mark.parametrize("num_columns", [96, integers.ALIASED])
def test_integers_are_multiplied_exactly(
    layer: type[Int8Linear] | type[Int4Linear], num_columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integers, "UNPACKED", 16 * num_columns)
    drawn = torch.Generator().manual_seed(0)
    weight, states = (torch.randn(rows, num_columns, generator=drawn) for rows in (40, 7))
    weight[3], states[2] = 0, 0
    made = layer([weight], torch.ones(40))
    steps = made.integers().numpy()
    scale = weight.abs().amax(1).numpy() / np.float32(127 if layer is Int8Linear else 120)
    expected = linear_by_hand(states[[0, 1, 3, 4, 5, 6]], steps, scale) + 1
    found = made(states).numpy()
    np.testing.assert_allclose(found[[0, 1, 3, 4, 5, 6]], expected, rtol=1e-6, atol=1e-6)
    assert (found[2] == 1).all()
    assert (found[:, 3] == 1).all()
    np.testing.assert_array_equal(made(states[4:]).numpy(), found[4:])


@pytest.mark.skipif(not integers.packs_integers(), reason="needs VNNI")
@pytest.mark.parametrize("shape", [(40, 96), (39, 97), (3, 33), (5, integers.ALIASED)])
def test_a_packed_layer_of_int8_answers_as_one_that_is_not(shape: tuple[int, int]) -> None:
    drawn = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=drawn)
    packed, plain = integers.int8_linear([weight]), Int8Linear([weight])
    assert isinstance(packed, PackedInt8Linear)
    for use in range(integers.PACKED_FROM + integers.NUM_TURNS + 1):
        states = 100 * torch.randn(1 + use % 3 * 31, shape[1], generator=drawn)
        assert torch.equal(packed(states), plain(states))
        assert torch.equal(packed.integers(), plain.integers())
    assert not hasattr(packed, "_integers"), "its memory is kept twice"


@pytest.mark.skipif(not integers.multiplies_integers(), reason="needs VNNI")
@pytest.mark.parametrize("layer", [Int8Linear, Int4Linear])
@pytest.mark.parametrize("bias", [None, torch.arange(40.0)])
def test_a_gpu_gets_the_numbers_of_a_cpu(
    layer: type[Int8Linear] | type[Int4Linear], bias: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = torch.Generator().manual_seed(0)
    weight, states = (torch.randn(rows, 96, generator=drawn).bfloat16() for rows in (40, 37))
    states[2] = 0
    made, product = layer([weight], bias), torch._int_mm
    asked = list[tuple[int, int]]()

    def multiplied(rounded: Tensor, part: Tensor) -> Tensor:
        asked.append((len(rounded), part.shape[1]))
        return product(rounded, part)

    expected = made(states), made.into_float32(states)
    monkeypatch.setattr(integers, "is_gpu", lambda _: True)
    monkeypatch.setattr(integers, "AT_ONCE", 64 * 16)
    monkeypatch.setattr(torch, "_int_mm", multiplied)
    for found, known in zip((made(states), made.into_float32(states)), expected, strict=True):
        assert found.dtype == known.dtype
        assert torch.equal(found, known)
    assert asked == [(64, 16), (64, 16), (64, 8)] * 2  # more than 16 rows, and few at a time
    odd = layer([weight[:39]])
    assert torch.allclose(odd(states), states @ odd.weight(torch.bfloat16).T, rtol=0.02, atol=0.2)


@pytest.mark.usefixtures("exact_states")
@pytest.mark.parametrize(("kind", "rounded"), [("int8", in_int8), ("int4", in_int4)])
def test_experts_of_a_gpu_answer_without_a_loop(
    kind: Literal["int8", "int4"], rounded: Callable[[Tensor], Tensor]
) -> None:
    drawn = torch.Generator().manual_seed(0)
    up, down = (
        torch.randn(5, *shape, generator=drawn).bfloat16() for shape in ((64, 32), (32, 32))
    )
    states, weights = torch.randn(7, 32, generator=drawn).bfloat16(), torch.rand(7, 3)
    chosen = torch.stack([torch.randperm(4, generator=drawn)[:3] for _ in states])  # one has none
    block = SimpleNamespace(act_fn=torch.nn.functional.silu, gate_up_proj=up, down_proj=down)
    experts = JoinedExperts(block, Quantizer(kind).linear)
    found = experts(states, chosen, weights).float()
    expected = torch.zeros(7, 32)
    for token, place in np.ndindex(7, 3):
        expert = int(chosen[token, place])
        first, last = (rounded(part[expert].float()) for part in (up, down))
        gate, rest = (first @ states[token].float()).chunk(2)
        expected[token] += weights[token, place] * (last @ (torch.sigmoid(gate) * gate * rest))
    assert (found - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.parametrize("layer", [Int8Linear, Int4Linear])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_are_rounded_slice_by_slice_as_a_whole_one_in_float32_is(
    layer: type[Int8Linear] | type[Int4Linear], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = torch.Generator().manual_seed(0)
    parts = [torch.randn(rows, 96, generator=drawn).to(dtype) for rows in (5, 8, 1)]
    whole = layer([torch.cat(parts).float()])
    monkeypatch.setattr(integers, "SLICE", 3 * 96 + 1)
    sliced = layer(parts)
    assert torch.equal(sliced.integers(), whole.integers())
    states = torch.randn(3, 96, generator=drawn)
    assert torch.equal(sliced(states), whole(states))


def test_the_integers_of_a_file_are_kept() -> None:
    drawn = torch.Generator().manual_seed(0)
    counts = torch.randint(-8, 8, (40, 3, 32), generator=drawn)
    steps = torch.randint(16, 16 * 15, (40, 3, 1), generator=drawn) / 16
    counts[:, :, 5], steps[:, 1], steps[:, 2] = -8, 127 / 8, -steps[:, 2]
    made = Int4Linear([0.37 * (counts * steps).flatten(1)])
    assert torch.equal(made.integers(), (counts * steps + 0.5).floor().flatten(1).to(torch.int8))
    np.testing.assert_allclose(made.weight(torch.float32), 0.37 * made.integers(), rtol=1e-6)


@pytest.mark.usefixtures("exact_states")
@pytest.mark.parametrize("layer", [Int8Linear, Int4Linear])
def test_float16_holds_products_with_integers(layer: type[Int8Linear] | type[Int4Linear]) -> None:
    weight = torch.full((1, 4096), 0.01, dtype=torch.float16)
    found = layer([weight])(torch.ones(1, 4096, dtype=torch.float16))
    assert found.item() == pytest.approx(40.96, rel=0.01)


def test_a_batch_gets_what_its_texts_get_alone(tmp_path: Path) -> None:
    llm = LLM(str(checkpoint(tmp_path)), quantization="int4")
    reads = [Read(IDS[:n], np.arange(n), Distribution()) for n in (7, 40, 23)]
    for together, read in zip(llm.predictor.read(reads), reads, strict=True):
        [alone] = llm.predictor.read([read])
        np.testing.assert_allclose(together.logprobs, alone.logprobs, atol=1e-4)


@pytest.mark.usefixtures("exact_states")
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_experts_are_rounded_one_by_one(kind: str, tmp_path: Path) -> None:
    shape = replace(LLADA2.shape, width=64, expert_hidden=32, hidden=96, head_dim=16, rotary=8)
    sizes = {"moe_intermediate_size": 32, "head_dim": 16, "rotary_dim": 8}
    published = replace(LLADA2, shape=shape, config={**LLADA2.config, **sizes})
    folder = published.write(tmp_path)
    plain, found = logprobs(folder), logprobs(folder, quantization=kind)
    rounded = in_int8 if kind == "int8" else in_int4
    with edited(folder) as weights:
        for name, weight in weights.items():
            if weight.ndim == 2 and not name.endswith("mlp.gate.weight"):
                weights[name] = (rounded if ".layers." in name else in_int8)(weight)
    expected = logprobs(folder)
    np.testing.assert_allclose(np.median(np.abs(found - expected)), 0, atol=1e-3)
    assert np.abs(plain - found).mean() > 5 * np.abs(found - expected).mean()


def test_a_model_without_linear_layers_is_refused(checkpoint_of: Callable[[str], Path]) -> None:
    folder = checkpoint_of("gpt2")
    with pytest.raises(InputError, match=r"covers linear layers, which are only 0% of the decoder"):
        LLM(folder, quantization="int8")


def test_rows_that_no_block_divides_are_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, d_model=40)
    with pytest.raises(InputError, match="needs rows of a multiple of 32 weights, not 40"):
        LLM(str(folder), quantization="int4")


@pytest.mark.usefixtures("exact_states")
def test_a_model_that_transformers_runs_is_quantized_too(tmp_path: Path) -> None:
    weights = random_weights(CONFIG)
    folder = write_checkpoint(tmp_path / "plain", CONFIG, weights)
    found = logprobs(folder, quantization="int8", attn_implementation="eager")
    for name, weight in weights.items():
        if ".blocks." in name and weight.ndim == 2:
            weights[name] = in_int8(weight)
    expected = logprobs(write_checkpoint(tmp_path / "rounded", CONFIG, weights))
    np.testing.assert_allclose(found, expected, atol=2e-4)
