"""The Dream adapter against an independent Dream: logits, the sampler, the tokenizer without remote
code.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from dise_core import LLM, Distribution, Read, SamplingParams
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

PROMPTS = [np.random.default_rng(n).integers(0, 60, n).tolist() for n in (3, 5, 8, 17)]
PARAMS = SamplingParams(max_tokens=16, block_length=16, steps=12, eps=1e-3, seed=6)


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
        expected = reference.logprobs(ids.tolist()).numpy()
        assert np.abs(reading.logprobs - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("steps", "temperature", "top_p"),
    [
        *((steps, 0.0, 1.0) for steps in (5, 12, 16, 24)),
        (12, 0.0, 0.9),
        (12, 0.2, 0.95),
        (12, 0.2, 0.7),
        (12, 1.0, 0.9),
        (12, 1.0, 1.0),
    ],
)
@pytest.mark.parametrize(
    ("alg", "unmasking"),
    [("maskgit_plus", "low-confidence"), ("topk_margin", "margin"), ("entropy", "entropy")],
)
def test_sampling_writes_what_the_published_sampler_writes_of_the_same_uniform_numbers(
    tmp_path: Path, alg: str, unmasking: str, steps: int, temperature: float, top_p: float
) -> None:
    folder = write_checkpoint(tmp_path, default_config())
    reference = ReferenceDream(folder)
    settings = {"unmasking": unmasking, "temperature": temperature, "top_p": top_p, "steps": steps}
    answers = LLM(str(folder)).generate(PROMPTS, PARAMS.model_copy(update=settings))
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        noise = Noise.for_request(6, np.array(prompt), 0)
        expected = naive_sample(
            reference,
            prompt,
            16,
            steps,
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
    drawn = PARAMS.model_copy(update={"unmasking": "entropy", "temperature": 0.2, "top_p": 0.95})
    texts = []
    for tempered in (None, True, False):
        params = drawn.model_copy(update={"tempered_confidence": tempered})
        texts.append([answer.outputs[0].token_ids for answer in llm.generate(PROMPTS, params)])
    assert texts[0] == texts[1]
    assert sum(one != other for one, other in zip(texts[0], texts[2], strict=True)) >= 3


def test_the_tokenizer_and_its_special_tokens_need_no_remote_code(tmp_path: Path) -> None:
    predictor = LLM(str(write_checkpoint(tmp_path, default_config()))).predictor
    tokenizer, special = predictor.tokenizer, predictor.info.special
    assert (special.mask_id, special.eos_ids, special.eos_id) == (MASK, {PAD, IM_END}, PAD)
    assert tokenizer.encode("abc<|mask|>").tolist() == [26, 2, MASK]
    assert tokenizer.decode(np.array([26, 2, PAD])) == "abc"
    assert tokenizer.has_chat_template
    chat = tokenizer.encode_chat([{"role": "user", "content": "ab"}])
    assert tokenizer.token_text(int(chat[0])) == "<|im_start|>"
    assert IM_END in chat
    assert tokenizer.decode(chat) == "user\nab\nassistant\n"


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
    folder = write_checkpoint(tmp_path, default_config())
    (folder / "config.json").write_text(json.dumps(default_config(**changes)))
    with pytest.raises(CheckpointError, match=message):
        LLM(str(folder))


def test_without_num_key_value_heads_every_head_has_its_own(tmp_path: Path) -> None:
    config = default_config()
    config["num_key_value_heads"] = config["num_attention_heads"]
    folder = write_checkpoint(tmp_path, config, gain=0.7)
    reference = ReferenceDream(folder)
    (folder / "config.json").write_text(json.dumps(config | {"num_key_value_heads": None}))
    ids = np.random.default_rng(0).integers(0, 60, 20)
    [reading] = LLM(str(folder)).predictor.read([Read(ids, np.arange(20), Distribution())])
    expected = reference.logprobs(ids.tolist()).numpy()
    assert np.abs(reading.logprobs - expected).max() < 1e-5


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, default_config())
    (folder / "merges.txt").unlink()
    with pytest.raises(CheckpointError, match=r"has neither tokenizer\.json nor merges\.txt"):
        LLM(str(folder))
