"""update_weights: a model then answers, to the bit, as one that was loaded with the new
weights, and nothing that the old ones computed is left.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dise_adapters.local.decoder import linear as packed
from dise_adapters.local.decoder.weights import PackedRows
from dise_adapters.local.reading import layout
from dise_core import (
    LLM,
    AsyncLLM,
    Calibration,
    Distribution,
    InputError,
    MaskPredictor,
    Read,
    SamplingParams,
)
from dise_core.errors import ClosedError
from dise_core.plans.reading import CacheHint, CacheSlot
from dise_core.testing.toy_model import ToyPredictor
from tests import reference_a2d, reference_dream, reference_modernbert, tiny_gguf
from tests.adapters.agreement import assert_alike
from tests.adapters.test_from_model import MASKED, roberta, scores, tokenizer
from tests.published import PUBLISHED
from tests.tiny_causal import checkpoint, llama

LAYER = "model.layers.0."

KINDS: dict[str, Callable[[Path], object]] = {
    "tied": reference_a2d.write_checkpoint,
    "biased": reference_dream.write_checkpoint,
    "whole": reference_modernbert.write_checkpoint,
    "mixture": PUBLISHED["rnd1"].write_into,
}


def changed(folder: Path, to: Path) -> dict[str, Tensor]:
    """Write a copy of a checkpoint with other weights, and return them by their names."""
    shutil.copytree(folder, to)
    [file] = folder.glob("*.safetensors")
    generator = torch.Generator().manual_seed(9)
    weights = {
        name: weight + 0.1 * torch.randn(weight.shape, generator=generator)
        for name, weight in load_file(file).items()
    }
    save_file(weights, to / file.name, metadata={"format": "pt"})
    return weights


def held(predictor: Any) -> dict[str, Tensor]:
    """Return what a loaded model computes with, by transformers' names."""
    places = {name: place[-1] for name, place in predictor._reader.weights.places.items()}
    return {
        name: place.layer.weight.to_dense()[place.rows] if isinstance(place, PackedRows) else place
        for name, place in places.items()
    }


def answers(predictor: MaskPredictor, *hints: CacheHint) -> list[np.ndarray]:
    """Return log-probabilities of texts of two lengths, some of which begin alike."""
    texts = np.arange(24) % 19, np.arange(16) % 19
    reads = [
        Read(ids, np.arange(len(ids))[-5:], Distribution(), cache=hint)
        for ids, hint in zip(texts, hints or [None, None], strict=True)
    ]
    return [reading.logprobs for reading in predictor.read(reads)]


def assert_same(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> None:
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("is_packed", [True, False])
def test_new_weights_answer_as_if_they_had_been_loaded(
    kind: str, dtype: Any, is_packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_packed:
        monkeypatch.setattr(packed, "can_pack", lambda _: False)
    folder = tmp_path / "Qwen3-0.6B-diffusion-mdlm-v0.1"
    folder.mkdir()
    KINDS[kind](folder)
    weights = changed(folder, tmp_path / "new" / folder.name)
    old, new = LLM(folder, dtype=dtype), LLM(tmp_path / "new" / folder.name, dtype=dtype)
    expected, before = answers(new.predictor), answers(old.predictor)
    assert not np.array_equal(before[0], expected[0])
    if kind == "mixture":  # whose experts are apart in the checkpoint
        weights = held(new.predictor)
    old.update_weights(weights.items())
    assert_same(answers(old.predictor), expected)
    name = "model.final_norm.weight" if kind == "whole" else f"{LAYER}self_attn.o_proj.weight"
    old.update_weights([(name, weights[name] * 2)])
    assert not np.array_equal(answers(old.predictor)[0], expected[0])
    old.update_weights([(name, weights[name])])
    assert_same(answers(old.predictor), expected)


def test_weights_have_the_checkpoints_names_too(llada: Path, tmp_path: Path) -> None:
    weights = changed(llada, tmp_path / "new")
    llm = LLM(llada, dtype="float32")
    llm.update_weights((name, weight.double()) for name, weight in weights.items())
    assert_same(answers(llm.predictor), answers(LLM(tmp_path / "new", dtype="float32").predictor))


def test_what_the_old_weights_cached_is_forgotten(
    llada: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "MIN_SHARED", 4)
    causal = Path(checkpoint(tmp_path / "causal", llama()))
    for folder, windows in (causal, []), (llada, [(16, 24), (8, 16)]):
        new = tmp_path / f"new {folder.name}"
        weights = changed(folder, new)
        llm, fresh = (LLM(path, dtype="float32").predictor for path in (folder, new))
        hints = [CacheHint(CacheSlot(), window) for window in windows]
        for _ in range(2):  # the second time from the cache
            answers(llm, *hints)
        llm.update_weights(weights)
        for _ in range(2):
            for mine, theirs in zip(answers(llm, *hints), answers(fresh), strict=True):
                np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_a_trainers_module_takes_weights_by_its_names() -> None:
    module, other = roberta(), roberta()
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(0.9)
    llm = LLM.from_model(module, tokenizer(**MASKED))
    llm.update_weights(other.named_parameters())
    assert scores(llm) == scores(LLM.from_model(other, tokenizer(**MASKED)))
    assert all(weight.requires_grad for weight in module.parameters())


def test_wrong_names_and_shapes_are_refused_and_nothing_is_changed(llada: Path) -> None:
    llm = LLM(llada, dtype="float32")
    weights, before = held(llm.predictor), answers(llm.predictor)
    good = ("model.norm.weight", weights["model.norm.weight"] * 2)
    with pytest.raises(InputError, match=r"has no weight 'model\.nrm\.weight'\. Did you mean"):
        llm.update_weights([good, ("model.nrm.weight", good[1])])
    with pytest.raises(InputError, match=r"weight .lm_head.weight. is of .*, the new one of \[2\]"):
        llm.update_weights([good, ("lm_head.weight", torch.zeros(2))])
    assert_same(answers(llm.predictor), before)


def test_a_model_whose_weights_cannot_be_replaced_says_so(llada: Path, tmp_path: Path) -> None:
    gguf = tiny_gguf.write(tmp_path / "tiny.gguf")
    for llm in LLM(llada, quantization="int8"), LLM(gguf), LLM(ToyPredictor()):
        with pytest.raises(InputError, match=r"takes no new weights: they are integers, from a"):
            llm.update_weights([("model.norm.weight", torch.zeros(64))])


def test_a_models_own_calibration_does_not_outlive_its_weights() -> None:
    llm = LLM("countdown")
    prompt, params = "83,18,75 -> 10", SamplingParams(max_tokens=48, block_length=16)
    assert llm.generate(prompt, params)[0].outputs[0].probability is not None
    llm.update_weights([])
    assert llm.generate(prompt, params)[0].outputs[0].probability is None


def test_a_named_calibration_refuses_other_weights() -> None:
    own = LLM("countdown").predictor.calibration_files[0]
    llm = LLM("countdown", calibration=Calibration.load(own))
    with pytest.raises(InputError, match="calibration is of the old weights"):
        llm.update_weights([])


def test_weights_are_updated_between_steps(llada: Path, tmp_path: Path) -> None:
    weights = changed(llada, tmp_path / "new")
    params = SamplingParams(max_tokens=8, block_length=4, seed=0)
    expected = LLM(tmp_path / "new", dtype="float32").generate(["ab", "ba"], params)

    async def main() -> None:
        llm = AsyncLLM(llada, dtype="float32")
        running = [asyncio.create_task(llm.generate(["ab"] * 4, params)) for _ in range(4)]
        await asyncio.sleep(0)
        await llm.update_weights(weights.items())
        assert len(await asyncio.gather(*running)) == 4
        assert_alike(await llm.generate(["ab", "ba"], params), expected, 1e-5)
        with pytest.raises(InputError, match="no weight 'x'"):
            await llm.update_weights([("x", torch.zeros(1))])
        threads = [await asyncio.wrap_future(llm.engine.call(threading.current_thread))]
        assert [thread.name for thread in threads] == ["dise-engine"]
        await llm.close()
        with pytest.raises(ClosedError):
            await llm.update_weights(weights.items())

    asyncio.run(asyncio.wait_for(main(), 120))
