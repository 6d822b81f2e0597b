"""LoRA adapters are merged as weights are read, or refused by what they are."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, ClassVar

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from dise_core import LLM, AsyncLLM, CheckpointError, Distribution, InputError, Read
from dise_core.params.engine import EngineConfig
from dise_core.testing import ToyPredictor
from tests import checkpoints, reference_llada
from tests.adapters.agreement import ROUNDED
from tests.app.serving import serving
from tests.commands import Dise
from tests.gguf_files import MODELS, convert
from tests.tiny_lora import ALPHA, RANK, eighths, exact, linear, merged, pair, product, write

WTE, FF_OUT = "model.transformer.wte", "model.transformer.ff_out"
QUERY = "model.transformer.blocks.0.q_proj"

KINDS = "llada", "a2d-qwen2", "sdar", "llada-moe", "llada2", "modernbert", "diffugpt", "llama"
"""Tied and with biases, with weights that are split, run by transformers, a judge, and others."""

OPTIONS: dict[str, dict[str, Any]] = {"diffugpt": {"adapter": "diffugpt", "mask_token_id": 5}}


def logprobs(folder: Path, **options: Any) -> np.ndarray:
    """Return all log-probabilities but those at position 0, which a judge has not."""
    reads = [Read(np.arange(2, 42), np.arange(1, 40), Distribution())]
    [reading] = LLM(str(folder), **options).predictor.read(reads)
    return np.asarray(reading.logprobs)


def assert_merged(
    folder: Path, lora: Path | dict[str, Path], changed: dict[str, Tensor], path: Path
) -> None:
    """Assert that log-probabilities are those of the checkpoint with the changed weights."""
    expected = logprobs(merged(folder, changed, path / "by_hand"))
    assert np.abs(logprobs(folder, lora=lora) - expected).max() <= 1e-6


@pytest.fixture(scope="module")
def llada(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = reference_llada.checkpoint(tmp_path_factory.mktemp("model") / "LLaDA-tiny")
    exact(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_answers_and_integers_are_the_merged_checkpoints(kind: str, tmp_path: Path) -> None:
    folder, options = checkpoints.write(kind, tmp_path / "model"), OPTIONS.get(kind, {})
    weights, tensors, changed, is_turned = exact(folder), {}, {}, kind == "diffugpt"
    for seed, module in enumerate(linear(weights)):
        weight = weights[f"{module}.weight"]
        of_module = pair(module, *(weight.T if is_turned else weight).shape, seed=seed)
        delta = product(*reversed(of_module.values()))
        changed[f"{module}.weight"] = weight + (delta.T if is_turned else delta)
        tensors |= of_module
    assert len(changed) > 7, "hardly any weight is changed"
    lora = write(tmp_path / "lora", tensors, fan_in_fan_out=is_turned)
    by_hand = merged(folder, changed, tmp_path / "by_hand")
    found, expected = (logprobs(folder, lora=lora, **options), logprobs(by_hand, **options))
    assert np.abs(found - expected).max() <= 1e-6
    assert np.abs(found - logprobs(folder, **options)).max() > 0.1, "it changes nothing"
    if not is_turned:  # whose layers are no linear ones of torch
        options = {**options, "quantization": "int8"}
        assert np.array_equal(logprobs(folder, lora=lora, **options), logprobs(by_hand, **options))


def test_patterns_and_rslora_scale_as_peft_does(llada: Path, tmp_path: Path) -> None:
    weights = load_file(llada / "model.safetensors")
    tensors, changed = dict[str, Tensor](), dict[str, Tensor]()
    for module, rank, alpha in (("0.q_proj", 4, ALPHA), ("0.k_proj", 16, 64), ("1.q_proj", 4, 7)):
        name = f"model.transformer.blocks.{module}"
        weight = weights[f"{name}.weight"]
        tensors |= (matrices := pair(name, *weight.shape, rank))
        delta = product(*reversed(matrices.values()), alpha / math.sqrt(rank))
        changed[f"{name}.weight"] = weight + delta
    alphas = {r"0\.k_proj": 64, "blocks.1.q_proj": 7, "proj": 3}
    ranks = {"k_proj": 16, ".*q_proj": 4}
    lora = write(tmp_path, tensors, alpha_pattern=alphas, rank_pattern=ranks, use_rslora=True)
    assert_merged(llada, lora, changed, tmp_path)


def test_saved_weights_replace_and_embeddings_are_added_to(llada: Path, tmp_path: Path) -> None:
    weights = load_file(llada / "model.safetensors")
    rows, width = weights[f"{WTE}.weight"].shape
    norm, head = "model.transformer.ln_f.weight", f"{FF_OUT}.weight"
    saved = {norm: weights[norm] + eighths(width), head: weights[head] + eighths(rows, width)}
    down, up = eighths(RANK, rows), eighths(width, RANK)
    tensors = saved | {f"{WTE}.lora_embedding_A": down, f"{WTE}.lora_embedding_B": up}
    table = weights[f"{WTE}.weight"] + 1  # which peft saves beside them
    lora = write(tmp_path, tensors | {f"{WTE}.base_layer.weight": table})
    changed = saved | {f"{WTE}.weight": table + product(up, down).T}
    assert_merged(llada, lora, changed, tmp_path)


def test_several_are_merged_by_name(llada: Path, tmp_path: Path) -> None:
    weight = load_file(llada / "model.safetensors")[f"{QUERY}.weight"]
    pairs = [pair(QUERY, *weight.shape, seed=seed) for seed in (0, 7)]
    loras = {str(i): write(tmp_path / str(i), tensors) for i, tensors in enumerate(pairs)}
    total = weight + sum(product(*reversed(tensors.values())) for tensors in pairs)
    assert_merged(llada, loras, {f"{QUERY}.weight": total}, tmp_path)
    assert LLM(str(llada), lora=loras).predictor.info.name == f"{llada}+0+1"
    assert EngineConfig(lora=loras).for_judge().loras == {}
    assert LLM(str(llada), lora=loras["0"]).predictor.info.name == f"{llada}+{loras['0']}"


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"quantization": "int8"}], ids=str)
def test_a_gguf_files_weights_are_merged(options: dict[str, Any], tmp_path: Path) -> None:
    tiny, path = MODELS["llada"], tmp_path / "llada-tiny-Q8_0.gguf"
    numbers = convert(tiny, tiny.folder(tmp_path / "original"), path, "Q8_0")
    weights = load_file(numbers / "model.safetensors")
    tensors = pair(QUERY, *weights[f"{QUERY}.weight"].shape)
    lora = write(tmp_path / "lora", tensors, base_model_name_or_path="GSAI-ML/LLaDA-tiny")
    changed = {f"{QUERY}.weight": weights[f"{QUERY}.weight"] + product(*reversed(tensors.values()))}
    expected = logprobs(merged(numbers, changed, tmp_path / "by_hand"), **options)
    found = logprobs(path, lora=lora, **options)
    assert np.array_equal(found, expected)
    assert np.abs(found - logprobs(path, **options)).max() > 0.05


def test_a_model_that_is_spread_is_merged_too(llada: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    weight = load_file(llada / "model.safetensors")[f"{QUERY}.weight"]
    lora = write(tmp_path, pair(QUERY, *weight.shape))
    spread = {"device_map": "auto", "max_memory": {"cpu": "200KB"}}
    found, expected = logprobs(llada, lora=lora, **spread), logprobs(llada, lora=lora)
    np.testing.assert_allclose(found, expected, atol=ROUNDED)


Q = pair(QUERY, 64, 64)
REFUSED: dict[str, tuple[dict[str, Tensor], dict[str, Any], str]] = {
    "dora": (Q, {"use_dora": True}, "has use_dora=True, which is not merged here: load what"),
    "another kind": (Q, {"alpha": 8, "peft_type": "LOHA"}, "has peft_type='LOHA', which is"),
    "a changed base": (Q, {"init_lora_weights": "pissa_niter_4"}, "has init_lora_weights='pissa_n"),
    "a field of tomorrow": (Q, {"use_qqlora": {"n": 2}}, r"has use_qqlora=\{'n': 2\}, which"),
    "a foreign base": (
        Q,
        {"base_model_name_or_path": "GSAI-ML/LLaDA-8B-Base/"},
        r"was trained on 'GSAI-ML/LLaDA-8B-Base/', and the model is 'LLaDA-tiny'\. Load that",
    ),
    "an unknown target": (pair("model.layers.9.x", 8, 8), {}, r"changes model\.layers\.9\.x\.weig"),
    "half a pair": (dict([*Q.items()][:1]), {}, r"q_proj\.lora_A\.weight, and .* has no such"),
    "a misfit": (pair(QUERY, 64, 32), {}, r"as a weight of \[64, 32\], and in .* has \[64, 64\]"),
    "odd patterns": (Q, {"alpha_pattern": {"(": 2}}, "_config.json: RE2 cannot use the expression"),
    "many patterns": (
        Q,
        {"alpha_pattern": dict.fromkeys(map(str, range(1025)), 2)},
        "adapter_config.json: alpha_pattern has 1025 entries, and may have 1,024",
    ),
    "no rank": (
        pair(QUERY, 64, 64, rank=0),
        {},
        r"matrices of \[0, 64\] and \[64, 0\] for .*q_proj",
    ),
    "two ranks": (
        {
            f"{QUERY}.lora_A.weight": torch.zeros(2, 64),
            f"{QUERY}.lora_B.weight": torch.zeros(64, 3),
        },
        {},
        r"has matrices of \[2, 64\] and \[64, 3\] for .*q_proj: they must be of \[r, in\] and",
    ),
    "vectors": (
        {f"{QUERY}.lora_A.weight": torch.zeros(64), f"{QUERY}.lora_B.weight": torch.zeros(64)},
        {},
        r"has matrices of \[64\] and \[64\] for .*q_proj: they must be of \[r, in\] and",
    ),
    "complex numbers": (
        {name: part.to(torch.complex64) for name, part in Q.items()},
        {},
        r"q_proj\.lora_A\.weight as C64, which cannot be merged: save it as float32",
    ),
    "integers": (
        {name: part.long() for name, part in Q.items()},
        {},
        r"q_proj\.lora_A\.weight as I64, which cannot be merged: save it as float32",
    ),
    "no number": (Q, {"lora_alpha": math.nan}, "cannot read .*adapter_config.json: "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_covered_is_refused_by_name(case: str, llada: Path, tmp_path: Path) -> None:
    tensors, fields, problem = REFUSED[case]
    with pytest.raises(CheckpointError, match=problem) as caught:
        LLM(str(llada), lora=write(tmp_path, tensors, **fields), lazy=True)
    assert str(tmp_path) in str(caught.value)


def test_the_base_may_be_called_by_another_id_or_path(llada: Path, tmp_path: Path) -> None:
    snapshot = "/root/hub/models--org--llada-TINY/snapshots/1f2e"
    for base in ("org/LLaDA-tiny", "/data/llada-tiny/", snapshot, "", None):
        LLM(str(llada), lora=write(tmp_path, Q, base_model_name_or_path=base), lazy=True)


def test_a_weight_that_is_embedding_and_head_is_refused(tmp_path: Path) -> None:
    folder = reference_llada.checkpoint(tmp_path / "tied", weight_tying=True)
    rows, width = load_file(folder / "model.safetensors")[f"{WTE}.weight"].shape
    lora = write(tmp_path / "lora", {f"{WTE}.weight": eighths(rows, width)})
    with pytest.raises(CheckpointError, match=r"wte\.weight, which in this model is embedding and"):
        LLM(str(folder), lora=lora)


def test_two_that_cannot_both_hold_are_refused(llada: Path, tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", {f"{QUERY}.weight": eighths(64, 64)})
    loras = {"a": write(tmp_path / "lora", Q), "b": whole}
    with pytest.raises(CheckpointError, match=r"both change .*q_proj\.weight, which one of them"):
        LLM(str(llada), lora=loras)


def test_adapters_are_read_from_safetensors_alone(llada: Path, tmp_path: Path) -> None:
    lora = write(tmp_path / "lora", Q)
    (lora / "adapter_model.safetensors").rename(lora / "adapter_model.bin")
    with pytest.raises(CheckpointError, match=r"holds no adapter_model\.safetensors: .* may hold"):
        LLM(str(llada), lora=lora)
    with pytest.raises(InputError, match=r"There is no folder '.*/nowhere'"):
        LLM(str(llada), lora=tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"lora holds a LoRA adapter and no model: name the model"):
        LLM(str(lora))


def test_what_merges_nothing_says_so(llada: Path) -> None:
    with pytest.raises(InputError, match=r"engine='vllm' chooses .* itself; leave out lora"):
        LLM(str(llada), engine="vllm", lora="x")
    with pytest.raises(InputError, match=r"loads 'http.*' does not heed lora: leave it out"):
        LLM("http://127.0.0.1:9", lora="x")
    with pytest.raises(InputError, match=r"^lora={'a': 3}: Input is not a valid path"):
        LLM(str(llada), lora={"a": 3})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="lora is about how a model is loaded, and this one is"):
        LLM(LLM("countdown", lazy=True).predictor, lora="x")

    class Guest(ToyPredictor):
        heeds: ClassVar[frozenset[str] | None] = None

        @classmethod
        def claims(cls, model: str, revision: str | None = None) -> bool:
            return model == "guest"

    with pytest.raises(InputError, match="What loads 'guest' merges no adapters: leave out lora"):
        LLM("guest", plugins=[Guest], lora="x")


@pytest.fixture
def countdown(tmp_path: Path) -> Path:
    """A weak adapter of the embedded model."""
    return write(tmp_path / "lora", pair(QUERY, 192, 192), lora_alpha=0.001)


def test_a_calibration_of_the_base_tells_nothing_of_the_merged_model(countdown: Path) -> None:
    base = LLM("countdown")
    llms = base, LLM("countdown", lora=countdown)
    ours, theirs = (llm.generate("83,18,75 -> 10")[0].outputs[0] for llm in llms)
    assert ours.text == theirs.text
    assert ours.probability is not None
    assert theirs.probability is None
    [own, *_] = base.predictor.calibration_files
    with pytest.raises(InputError, match=r"with model countdown, and this has countdown\+/"):
        LLM("countdown", lora=countdown, calibration=own)


def test_the_command_and_the_server_say_what_is_merged(countdown: Path, dise: Dise) -> None:
    texts = ("--prompt", "83,18,75 -> 10", "--response", "83-75=8")
    run = dise("score", *texts, "--lora", countdown, "--json")
    assert json.loads(run.out)["model"] == f"countdown+{countdown}"
    with serving(AsyncLLM("countdown", lora={"mine": countdown})) as url:
        [model] = httpx.get(f"{url}/v1/models").json()["data"]
    assert model["id"] == "countdown+mine"
