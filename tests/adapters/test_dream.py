"""The Dream adapter against an independent Dream: logits, the sampler, the tokenizer without remote
code.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dise_adapters.checkpoint.hub import read_config
from dise_core import LLM, Distribution, Read, SamplingParams, ScoringParams
from dise_core.errors import CheckpointError
from dise_core.noise import Noise
from dise_core.testing import check_mask_predictor
from tests.reference_dream import (
    IM_END,
    MASK,
    PAD,
    ReferenceDream,
    default_config,
    naive_sample,
    write_checkpoint,
)


@pytest.fixture(autouse=True)
def _fresh_configs() -> None:
    read_config.cache_clear()


@pytest.mark.parametrize(
    "changes", [{}, {"num_key_value_heads": 4}, {"rope_theta": 10000.0, "num_hidden_layers": 3}]
)
def test_logits_agree_with_an_independent_dream(tmp_path: Path, changes: dict[str, object]) -> None:
    folder = write_checkpoint(tmp_path, default_config(**changes), gain=0.7)
    reference = ReferenceDream(folder)
    random = np.random.default_rng(0)
    texts = [random.integers(0, 60, length) for length in (1, 2, 9, 40, 96)]
    readings = LLM(str(folder)).predictor.read(
        [Read(ids, np.arange(len(ids)), Distribution()) for ids in texts]
    )
    for ids, reading in zip(texts, readings, strict=True):
        expected = torch.log_softmax(reference.logits(ids.tolist()), dim=-1).numpy()
        assert np.abs(reading.logprobs - expected).max() < 1e-5


@pytest.mark.parametrize("steps", [5, 12, 16, 24])
@pytest.mark.parametrize(
    ("alg", "unmasking"),
    [("maskgit_plus", "low-confidence"), ("topk_margin", "margin"), ("entropy", "entropy")],
)
def test_greedy_sampling_writes_what_the_published_sampler_writes(
    tmp_path: Path, alg: str, unmasking: str, steps: int
) -> None:
    folder = write_checkpoint(tmp_path, default_config())
    reference = ReferenceDream(folder)
    random = np.random.default_rng(2)
    prompts = [random.integers(0, 60, length).tolist() for length in (3, 17)]
    params = SamplingParams(
        max_tokens=16, block_length=16, steps=steps, eps=1e-3, unmasking=unmasking
    )
    for prompt, answer in zip(prompts, LLM(str(folder)).generate(prompts, params), strict=True):
        assert [*prompt, *answer.outputs[0].token_ids] == naive_sample(
            reference, prompt, 16, steps, alg
        )


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(0.2, 0.95), (0.2, 0.7), (1.0, 0.9), (1.0, 1.0), (0.0, 0.9)]
)
@pytest.mark.parametrize(
    ("alg", "unmasking"),
    [("maskgit_plus", "low-confidence"), ("topk_margin", "margin"), ("entropy", "entropy")],
)
def test_sampling_writes_what_the_published_sampler_writes_of_the_same_uniform_numbers(
    tmp_path: Path, alg: str, unmasking: str, temperature: float, top_p: float
) -> None:
    folder = write_checkpoint(tmp_path, default_config())
    reference = ReferenceDream(folder)
    random = np.random.default_rng(4)
    prompts = [random.integers(0, 60, length).tolist() for length in (3, 5, 8, 17)]
    params = SamplingParams(
        max_tokens=16,
        block_length=16,
        steps=12,
        eps=1e-3,
        unmasking=unmasking,
        temperature=temperature,
        top_p=top_p,
        seed=6,
    )
    for prompt, answer in zip(prompts, LLM(str(folder)).generate(prompts, params), strict=True):
        noise = Noise.for_request(6, np.array(prompt), 0)
        expected = naive_sample(
            reference,
            prompt,
            16,
            12,
            alg,
            1e-3,
            temperature,
            top_p,
            lambda step, at, n=noise: n.at_step(step).uniforms(at),
        )
        assert [*prompt, *answer.outputs[0].token_ids] == expected


def test_the_order_before_temperature_and_top_p_is_another_one(tmp_path: Path) -> None:
    """What the test above would not notice: that both orders commit the same."""
    llm = LLM(str(write_checkpoint(tmp_path, default_config())))
    random = np.random.default_rng(4)
    prompts = [random.integers(0, 60, length).tolist() for length in (3, 5, 8, 17)]
    texts = []
    for tempered in (None, True, False):
        params = SamplingParams(
            max_tokens=16, block_length=16, steps=12, eps=1e-3, unmasking="entropy",
            temperature=0.2, top_p=0.95, seed=6,
            tempered_confidence=tempered,
        )  # fmt: skip
        texts.append([answer.outputs[0].token_ids for answer in llm.generate(prompts, params)])
    assert texts[0] == texts[1]
    assert sum(one != other for one, other in zip(texts[0], texts[2], strict=True)) >= 3


def test_special_tokens_come_from_the_checkpoint(tmp_path: Path) -> None:
    special = LLM(str(write_checkpoint(tmp_path, default_config()))).predictor.info.special
    assert (special.mask_id, special.eos_ids, special.eos_id) == (MASK, {PAD, IM_END}, PAD)


def test_the_tokenizer_needs_no_remote_code(tmp_path: Path) -> None:
    tokenizer = LLM(str(write_checkpoint(tmp_path, default_config()))).predictor.tokenizer
    assert tokenizer.encode("abc<|mask|>").tolist() == [26, 2, MASK]
    assert tokenizer.decode(np.array([26, 2, PAD])) == "abc"
    assert tokenizer.has_chat_template
    chat = tokenizer.encode_chat([{"role": "user", "content": "ab"}])
    assert tokenizer.token_text(int(chat[0])) == "<|im_start|>"
    assert IM_END in chat
    assert tokenizer.decode(chat) == "user\nab\nassistant\n"


def test_dise_is_the_mean_log_probability_of_the_reference(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, default_config(), gain=0.7)
    prompt, response = [1, 2, 3], [4, 5, 6, 7]
    [answer] = LLM(str(folder)).score([prompt], [response], ScoringParams(selector="full"))
    logprobs = torch.log_softmax(ReferenceDream(folder).logits(prompt + response), dim=-1)
    expected = float(logprobs[range(7), prompt + response].mean())
    assert answer.outputs[0].score.value == pytest.approx(expected, abs=1e-5)


def test_the_adapter_conforms(tmp_path: Path) -> None:
    check_mask_predictor(LLM(str(write_checkpoint(tmp_path, default_config()))).predictor)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"use_sliding_window": True},
            "use_sliding_window=True is not covered, only False or None",
        ),
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling={'type': 'yarn'} is not covered"),
        (
            {"mask_token_id": 63},
            r"name different mask tokens: 63 by config.json's mask_token_id, 64 by .*<\|mask\|>",
        ),
    ],
)
def test_variants_that_are_not_covered_are_refused_by_field_and_value(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    folder = write_checkpoint(tmp_path, default_config(**changes))
    with pytest.raises(CheckpointError, match=message):
        LLM(str(folder))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, None) for name in ("hidden_size", "vocab_size", "rope_theta", "rms_norm_eps")),
        ("rms_norm_eps", "small"),
    ],
)
def test_a_field_that_is_no_number_is_named_with_its_value(
    tmp_path: Path, field: str, value: object
) -> None:
    folder = write_checkpoint(tmp_path, default_config())
    (folder / "config.json").write_text(json.dumps(default_config() | {field: value}))
    with pytest.raises(
        CheckpointError, match=f"config.json: {field}={json.dumps(value)} must be a number above 0"
    ):
        LLM(str(folder))


def test_without_num_key_value_heads_every_head_has_its_own(tmp_path: Path) -> None:
    config = default_config()
    config["num_key_value_heads"] = config["num_attention_heads"]
    folder = write_checkpoint(tmp_path, config, gain=0.7)
    reference = ReferenceDream(folder)
    (folder / "config.json").write_text(json.dumps(config | {"num_key_value_heads": None}))
    ids = np.random.default_rng(0).integers(0, 60, 20)
    [reading] = LLM(str(folder)).predictor.read([Read(ids, np.arange(20), Distribution())])
    expected = torch.log_softmax(reference.logits(ids.tolist()), dim=-1).numpy()
    assert np.abs(reading.logprobs - expected).max() < 1e-5


def test_missing_fields_and_files_are_named(tmp_path: Path) -> None:
    config = default_config()
    del config["rope_theta"]
    with pytest.raises(CheckpointError, match="has no field 'rope_theta'"):
        LLM(str(write_checkpoint(tmp_path / "a", config)))
    folder = write_checkpoint(tmp_path / "b", default_config())
    (folder / "merges.txt").unlink()
    with pytest.raises(CheckpointError, match=r"has neither tokenizer\.json nor merges\.txt"):
        LLM(str(folder))
