"""The LLaDA adapter against an independent LLaDA: logits, decoding, checkpoints that do not fit."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from dise_core import LLM, Candidates, Distribution, InputError, Read, SamplingParams
from dise_core.errors import CheckpointError, ModelError
from dise_core.plans.reading import Guidance
from tests.adapters.agreement import assert_agrees, random_texts
from tests.reference_backbone import edited
from tests.reference_llada import ReferenceLLaDA, checkpoint, naive_decode
from tests.tiny_format import edit

VARIANTS: dict[str, dict[str, object]] = {
    "plain": {},
    "grouped queries": {"n_heads": 4, "n_kv_heads": 2},
    "no n_kv_heads": {"n_kv_heads": None},
    "tied": {"weight_tying": True},
    "rope_theta": {"rope_theta": 10000.0},
    "three layers": {"n_layers": 3, "mlp_hidden_size": 160},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_agree_with_an_independent_llada(tmp_path: Path, variant: str) -> None:
    folder = checkpoint(tmp_path, shards=2, gain=0.7, **VARIANTS[variant])  # type: ignore[arg-type]
    texts = random_texts(50, 1, 2, 7, 33, 64, 96)
    assert_agrees(LLM(str(folder)), ReferenceLLaDA(folder, torch.float64), texts)


@pytest.mark.parametrize("option", ["logits_eos_inf", "confidence_eos_eot_inf"])
@pytest.mark.parametrize("seed", [3, 4])
def test_end_tokens_are_held_back_as_in_the_published_loop(
    llada: Path, tmp_path: Path, option: str, seed: int
) -> None:
    reference = ReferenceLLaDA(llada, torch.float64)
    prompts = [
        np.random.default_rng(seed).integers(0, 48, length).tolist() for length in (2, 9, 21)
    ]
    plain = [naive_decode(reference, prompt, 20, 10, 2)[len(prompt) :] for prompt in prompts]
    [(end, _)] = Counter(token for text in plain for token in text).most_common(1)
    reference.config["eos_token_id"] = end
    held_back = [naive_decode(reference, prompt, 20, 10, 2, **{option: True}) for prompt in prompts]  # type: ignore[arg-type]
    assert any(
        one != prompt + other for one, prompt, other in zip(held_back, prompts, plain, strict=True)
    )
    folder = checkpoint(tmp_path / "ended", eos_token_id=int(end))
    params = SamplingParams(
        max_tokens=20, block_length=10, tokens_per_step=2, unmasking_settings={option: True}
    )
    for prompt, expected, answer in zip(
        prompts, held_back, LLM(str(folder)).generate(prompts, params), strict=True
    ):
        assert [*prompt, *answer.outputs[0].token_ids] == expected
        assert option == "confidence_eos_eot_inf" or end not in answer.outputs[0].token_ids


def test_guidance_combines_the_logits_before_the_readout(llada: Path) -> None:
    reference = ReferenceLLaDA(llada)
    ids, bare = np.array([1, 2, 3, 49, 49]), np.array([49, 49, 49, 49, 49])
    guided = Read(ids, np.array([3, 4]), Distribution(), guidance=Guidance(bare, 2.0))
    plain = Read(ids, np.array([3]), Candidates())
    reading, *_ = LLM(str(llada)).predictor.read([guided, plain])
    conditional, unconditional = reference.logits(ids.tolist()), reference.logits(bare.tolist())
    expected = torch.log_softmax(unconditional + 3 * (conditional - unconditional), dim=-1)[3:]
    assert np.abs(reading.logprobs - expected.numpy()).max() < 1e-4


def test_the_special_tokens_come_from_the_checkpoint(llada: Path) -> None:
    predictor = LLM(str(llada)).predictor
    assert predictor.info.special.mask_id == 49
    assert predictor.info.special.eos_ids == {48}
    assert (predictor.info.vocab_size, predictor.info.max_length) == (52, 96)


def test_bfloat16_is_close_to_float32(llada: Path) -> None:
    read = Read(np.arange(30), np.arange(30), Distribution())
    [exact], [rounded] = (
        LLM(str(llada), dtype=dtype).predictor.read([read]) for dtype in ("float32", "bfloat16")
    )  # type: ignore[arg-type]
    assert 0 < np.abs(np.exp(exact.logprobs) - np.exp(rounded.logprobs)).max() < 0.1


@pytest.mark.parametrize(("ratio", "size"), [({}, 4 * 64), ({"mlp_ratio": 3}, 3 * 64)])
def test_without_mlp_hidden_size_it_is_mlp_ratio_times_d_model(
    tmp_path: Path, ratio: dict[str, int], size: int
) -> None:
    checkpoint(tmp_path, gain=0.7, mlp_hidden_size=size)
    reference = ReferenceLLaDA(tmp_path, torch.float64)
    edit(tmp_path / "config.json", mlp_hidden_size=None, **ratio)
    assert_agrees(LLM(str(tmp_path)), reference, random_texts(50, 33))


def test_a_folder_without_weights_or_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    (folder / "model.safetensors").rename(tmp_path / "model.bin")
    with pytest.raises(CheckpointError, match="holds no weights in safetensors"):
        LLM(str(folder))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"has neither tokenizer.json nor vocab.json"):
        LLM(str(folder))


@pytest.mark.parametrize("name", ["ln_f", "ff_out"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_fail_the_request_with_the_position(
    tmp_path: Path, temperature: float, name: str
) -> None:
    folder = checkpoint(tmp_path)
    with edited(folder) as weights:
        weight = weights[f"model.transformer.{name}.weight"]
        weight.fill_(torch.finfo(weight.dtype).max)  # finite; its products are not
    with pytest.raises(ModelError, match="logits at position 3 hold NaN or infinity"):
        LLM(str(folder)).generate(
            [[1, 2, 3]], SamplingParams(max_tokens=4, temperature=temperature)
        )


def test_the_lowest_temperature_writes_the_likeliest_tokens(llada: Path) -> None:
    llm = LLM(str(llada))
    greedy, cold = (
        llm.generate([[1, 2, 3]], SamplingParams(max_tokens=12, temperature=temperature))[0]
        .outputs[0]
        .token_ids
        for temperature in (0.0, 5e-324)
    )
    assert greedy == cold


def test_a_device_that_is_not_there_is_refused(llada: Path) -> None:
    with pytest.raises(InputError, match="device 'quantum' cannot be used"):
        LLM(str(llada), device="quantum")
