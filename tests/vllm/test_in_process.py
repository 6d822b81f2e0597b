"""LLaDA and Dream inside a real vLLM: the numbers and texts of the transformers engine, and an
engine that lives on.
"""

import json
import re

import numpy as np
import pytest

from dise_adapters.vllm.wire import READS, encode
from dise_core import LLM, Candidates, InputError, Read, SamplingParams, TokenLogProbs, TopLogProbs
from dise_core.errors import ModelError
from dise_core.noise import Noise
from dise_core.plans.reading import Guidance
from dise_core.testing import check_length_controller, check_mask_predictor, check_scorer
from dise_decide import ChoiceQuestion, DecisionParams, PredicateQuestion
from dise_decide.llm import decisions
from dise_strategies.lengths.dise_flexible import DiSEFlexible
from dise_strategies.scorers.monte_carlo import MonteCarlo
from tests.adapters.agreement import assert_alike

TOLERANCE = 1e-4


def questions(vocab_size: int, mask_id: int | None) -> list[Read]:
    """Return every readout over texts of several lengths, some with masks."""
    random = np.random.default_rng(0)
    reads = []
    for length in (1, 2, 7, 33, 64, 96):
        ids = random.integers(0, 45, length)
        ids[random.random(length) < 0.3] = mask_id
        positions = np.sort(random.choice(length, min(length, 9), replace=False))
        reads += [
            Read(ids, positions, TokenLogProbs(random.integers(0, vocab_size, len(positions)))),
            Read(ids, positions[:3], TopLogProbs(4)),
            Read(ids, positions, TopLogProbs(2, (7, 1), ids[positions], with_entropy=True)),
            Read(ids, positions, Candidates(forbidden=(3, 4))),
            Read(ids, positions, Candidates(0.8, 0.9, 20, Noise(7, 2, length), "entropy")),
            Read(ids, positions, Candidates(confidence="margin")),
        ]
    return reads


def test_every_readout_agrees_with_transformers(engines: tuple[LLM, LLM]) -> None:
    vllm, transformers = (llm.predictor for llm in engines)
    reads = questions(vllm.info.vocab_size, vllm.info.special.mask_id)
    for read, ours, theirs in zip(reads, vllm.read(reads), transformers.read(reads), strict=True):
        np.testing.assert_array_equal(ours.token_ids, theirs.token_ids, err_msg=str(read.readout))
        np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=TOLERANCE)
        np.testing.assert_allclose(ours.confidences, theirs.confidences, atol=TOLERANCE)


def test_a_whole_decode_writes_the_same_tokens(engines: tuple[LLM, LLM]) -> None:
    prompts = [np.random.default_rng(n).integers(0, 45, n).tolist() for n in (1, 5, 12, 30)]
    for temperature in (0.0, 1.0):
        params = SamplingParams(
            max_tokens=32, block_length=8, tokens_per_step=2, temperature=temperature, seed=0,
            scorer="written",
        )  # fmt: skip
        ours, theirs = (llm.generate(prompts, params) for llm in engines)
        assert_alike(ours, theirs, TOLERANCE)
        for one, other in zip(ours, theirs, strict=True):
            assert [token.written for token in one.outputs[0].tokens] == pytest.approx(
                [token.written for token in other.outputs[0].tokens], abs=1e-5
            )


def test_the_predictor_algorithm_1_and_monte_carlo_conform(engines: tuple[LLM, LLM]) -> None:
    predictor = engines[0].predictor
    check_mask_predictor(predictor)
    check_length_controller(
        DiSEFlexible(mask_size=3, patience=2, max_iterations=3), predictor, TOLERANCE
    )
    check_scorer(MonteCarlo(num_samples=4), predictor, TOLERANCE)


def test_the_embedded_model_solves_the_same_problems(countdown: tuple[LLM, LLM]) -> None:
    prompts = [f"{n + 40},{n + 7},{n + 11} -> {n + 36}" for n in range(16)]
    params = SamplingParams(
        max_tokens=48,
        block_length=16,
        length="dise-flexible",
        length_settings={"max_iterations": 2},
    )
    ours, theirs = (llm.generate(prompts, params) for llm in countdown)
    for one, other in zip(ours, theirs, strict=True):
        assert one.outputs[0].text == other.outputs[0].text
        assert one.outputs[0].score.value == pytest.approx(
            other.outputs[0].score.value, abs=TOLERANCE
        )


def test_a_constraint_writes_the_same_answers(countdown: tuple[LLM, LLM]) -> None:
    step = "[0-9]+[-+*/][0-9]+=[0-9]+"
    prompts = [f"{n + 40},{n + 7},{n + 11} -> {n + 36}" for n in range(16)]
    for temperature in (0.0, 1.0):
        params = SamplingParams(
            max_tokens=32,
            temperature=temperature,
            seed=0,
            constraint="regex",
            constraint_settings={"regex": f"{step}(,{step})?<answer>[0-9]{{1,2}}"},
        )
        ours, theirs = (llm.generate(prompts, params) for llm in countdown)
        for one, other in zip(ours, theirs, strict=True):
            assert one.outputs[0].text == other.outputs[0].text
            assert re.fullmatch(f"{step}(,{step})?<answer>[0-9]{{1,2}}", one.outputs[0].text)


def test_decisions_have_the_same_probabilities(countdown: tuple[LLM, LLM]) -> None:
    inputs = [f"{n + 40},{n + 7},{n + 11} -> {n + 36}" for n in range(8)]
    questions = [
        ChoiceQuestion(instructions="18", choices=["+", "-", "*", "/"]),
        PredicateQuestion(instructions="18+75=", yes="93", no="57"),
    ]
    told = []
    for llm in countdown:
        job = decisions(llm.planner, inputs, questions, DecisionParams(layout="cloze"))
        answers = [answer for output in llm.do(job) for answer in output.answers]
        told.append([number for answer in answers for number in answer.diagnostics.logprobs])
    assert len(told[0]) == 8 * 6
    np.testing.assert_allclose(*told, atol=TOLERANCE)


def test_what_only_transformers_reads_is_refused_and_the_engine_lives_on(
    engines: tuple[LLM, LLM],
) -> None:
    vllm, transformers = engines
    guidance = Guidance(np.arange(5), 1.0)

    def plan():  # type: ignore[no-untyped-def]
        return (yield [Read(np.arange(5), np.array([0]), TopLogProbs(1), guidance=guidance)])

    [outcome] = vllm.engine.run([plan()])
    with pytest.raises(InputError, match="guidance needs the transformers engine"):
        outcome.unwrap()
    params = SamplingParams(max_tokens=8, block_length=8)
    ours, theirs = (llm.generate([[1, 2, 3]], params)[0].outputs[0] for llm in (vllm, transformers))
    assert ours.token_ids == theirs.token_ids


def test_bad_reads_that_reach_the_pooler_fail_alone(engines: tuple[LLM, LLM]) -> None:
    from vllm import PoolingParams

    from dise_adapters.vllm.wire import TASK

    reader = engines[0].predictor._reader  # type: ignore[attr-defined]
    good = {"positions": [1], "readout": "top_logprobs", "k": 2}
    bad = [
        {"positions": [99], "readout": "top_logprobs", "k": 2},
        {"readout": "?", "positions": []},
        {},
        7,
    ]
    params = [
        PoolingParams(task=TASK, extra_kwargs={"reads": json.dumps([asked]).encode()})
        for asked in (good, *bad, good)
    ]
    prompts = [{"prompt_token_ids": [1, 2, 3]}] * len(params)
    outputs = reader._engine.encode(
        prompts, pooling_params=params, pooling_task=TASK, use_tqdm=False
    )
    first, *broken, last = (output.outputs.data.numpy() for output in outputs)
    np.testing.assert_allclose(first, last, atol=1e-6)
    assert all(np.isnan(vector).all() and len(vector) == 1 for vector in broken)


def test_what_is_asked_travels_whole_and_is_not_copied_number_by_number() -> None:
    from dise_adapters.vllm.inside.pooler import pooling_params

    noise = Noise(2**64 - 1, 0, 2**63)
    read = Read(np.arange(9), np.arange(9), Candidates(0.7, 0.9, 5, noise, forbidden=(2,)))
    params = pooling_params([encode(read)])
    copied = params.clone().extra_kwargs
    [form] = READS.validate_json(copied["reads"], context=9)
    assert form.decoded(read.token_ids).readout == read.readout
    assert copied["reads"] is params.extra_kwargs["reads"]


def test_a_batch_that_the_engine_refuses_leaves_nothing_behind(engines: tuple[LLM, LLM]) -> None:
    vllm, transformers = (llm.predictor for llm in engines)
    reader = vllm._reader  # type: ignore[attr-defined]
    long, short = (np.arange(length) % 40 for length in (200, 7))
    with pytest.raises(ModelError, match=r"the vLLM engine failed: VLLMValidationError: .*200"):
        reader.read([Read(text, np.array([3]), TopLogProbs(2)) for text in (short, long)])
    assert not reader._engine.llm_engine.has_unfinished_requests()
    read = Read(short, np.array([5, 1]), TopLogProbs(3))
    [[ours], [theirs]] = vllm.read([read]), transformers.read([read])
    np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=TOLERANCE)
