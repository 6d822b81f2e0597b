"""How a response was written, as a naive loop over a model in plain torch tells it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dise_core import LLM, Noise, RequestOutput, SamplingParams
from tests.adapters.agreement import ROUNDED
from tests.laws.generators import POLICIES
from tests.published import DIFFCODER, SDAR
from tests.reference_llada import ReferenceLLaDA, checkpoint
from tests.reference_writing import Logits, NaiveWriting

PROMPTS = [np.random.default_rng(n).integers(8, 35, n).tolist() for n in (2, 7)]
EDITS = {"threshold": 0.1, "editing_threshold": 0.05}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[LLM, Logits]]:
    """Checkpoints with full attention, and in blocks whose last is written with masks or alone."""
    folder = checkpoint(tmp_path_factory.mktemp("llada") / "model")
    reference = ReferenceLLaDA(folder, torch.float64)
    made: dict[str, tuple[LLM, Logits]] = {
        "full": (LLM(str(folder)), lambda ids: reference.logits(ids).numpy())
    }
    for name, published in (("masks", SDAR), ("alone", DIFFCODER)):
        folder = published.write(tmp_path_factory.mktemp(name))
        plain = published.reference(folder)
        made[name] = LLM(str(folder)), lambda ids, plain=plain: plain.logits(ids).numpy()
    return made


def naive(
    llm: LLM, logits: Logits, prompt: list[int], params: SamplingParams, **more: Any
) -> NaiveWriting:
    """Write a response of max_tokens tokens, or until its end where the model has blocks."""
    info = llm.predictor.info
    policy = llm.catalog.unmasking_policy(params.unmasking, params.unmasking_settings)
    noise = Noise.for_request(params.seed or 0, np.array(prompt), 0)
    text = [*prompt, *[info.special.masking_id] * params.max_tokens]
    writing = NaiveWriting(logits, info, params, policy, noise, text, len(prompt), **more)
    until_end = info.block_length is not None and params.length != "fixed"
    writing.fill(len(prompt), until_end=until_end)
    return writing


def assert_same(answer: RequestOutput, prompt: list[int], expected: NaiveWriting) -> None:
    [output] = answer.outputs
    assert [*prompt, *output.token_ids] == expected.text
    told, places = output.writing, range(len(expected.text))
    assert told is not None
    assert told.ids.tolist() == expected.text
    assert told.steps.tolist() == [expected.steps.get(at, -1) for at in places]
    logprobs = [expected.logprobs.get(at, np.nan) for at in places]
    np.testing.assert_allclose(told.logprobs, logprobs, atol=ROUNDED)
    for at, token in enumerate(output.tokens, len(prompt)):
        assert token.written == pytest.approx(logprobs[at], abs=ROUNDED)


@pytest.mark.parametrize("kind", ["full", "masks", "alone"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_writes_what_the_naive_loop_writes(
    models: dict[str, tuple[LLM, Logits]], kind: str, temperature: float, policy: str
) -> None:
    llm, logits = models[kind]
    params = SamplingParams(
        max_tokens=10, temperature=temperature, seed=1, unmasking=policy, scorer="written",
        unmasking_settings=EDITS if policy == "llada2-editing" else {},
    )  # fmt: skip
    if kind == "full":
        params = params.model_copy(update={"block_length": 6})
    for prompt, answer in zip(PROMPTS, llm.generate(PROMPTS, params), strict=True):
        expected = naive(llm, logits, prompt, params)
        assert_same(answer, prompt, expected)
        assert answer.usage.nfe == expected.num_steps


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("full", {"steps": 5}),
        ("full", {"steps": 4, "unmasking": "origin", "unmasking_settings": {"eps": 1e-3}}),
        ("full", {"cfg_scale": 1.5}),
        ("full", {"n": 1, "length": "fixed"}),
        ("masks", {"cache": "none"}),
        ("masks", {"length": "fixed"}),
        ("masks", {"cfg_scale": 1.5}),
        ("alone", {"length": "fixed", "cache": "none"}),
    ],
    ids=str,
)
def test_every_schedule_and_door_of_the_sampler_does(
    models: dict[str, tuple[LLM, Logits]], kind: str, more: dict[str, Any]
) -> None:
    llm, logits = models[kind]
    params = SamplingParams(max_tokens=11, temperature=0.7, seed=2, scorer="written", **more)
    for prompt, answer in zip(PROMPTS, llm.generate(PROMPTS, params), strict=True):
        assert_same(answer, prompt, naive(llm, logits, prompt, params))
