"""lm-polygraph's own benchmark manager on the embedded model: its figures against ours, and what
its estimators are given against what the library answers.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("lm_polygraph", reason="needs dise[polygraph]")
    from lm_polygraph import Dataset, UEManager, estimate_uncertainty
    from lm_polygraph import estimators as theirs
    from lm_polygraph.utils.builder_enviroment_stat_calculator import (
        BuilderEnvironmentStatCalculator,
    )

    from dise_eval.polygraph import DiseEstimator, DiseModel, Graded, calculators
from embedded_models.countdown.problems import is_correct, parse_prompt
from uncertainty import with_polygraph

from dise_core import LLM, InputError, RequestOutput, SamplingParams, ScoringParams
from dise_core.plans.reading import Read
from dise_core.plans.readouts import TopLogProbs
from dise_eval.datasets.questions import load
from dise_eval.statistics.metrics import aurc, prr

pytestmark = pytest.mark.filterwarnings("ignore")

PARAMS = SamplingParams(max_tokens=48, block_length=16, seed=0)
PROMPTS = ["83,18,75 -> 10", "9,5,12 -> 48", "30,100,93 -> 23"]


@pytest.fixture(scope="module")
def benchmark() -> Any:
    """The example's benchmark, run on the first 32 problems."""
    manager = with_polygraph.manager(32)
    manager()
    return manager


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("countdown")


@pytest.fixture(scope="module")
def answers(benchmark: Any, llm: LLM) -> list[RequestOutput]:
    """What the library answers to the same prompts, without lm-polygraph."""
    return llm.generate(benchmark.data.x, PARAMS)


def run(model: DiseModel, *estimators: Any, prompts: list[str] = PROMPTS, **more: Any) -> Any:
    """Run the manager on a few prompts; return it."""
    data = Dataset(prompts, [""] * len(prompts), batch_size=2)
    builder, ours = BuilderEnvironmentStatCalculator(model), calculators(num_samples=3)
    quiet = {"processors": [], "ignore_exceptions": False, "verbose": False}
    manager = UEManager(data, model, list(estimators), builder, ours, [], [], **quiet, **more)
    manager()
    return manager


def logprobs_of(answer: RequestOutput, index: int = 0) -> list[float]:
    """The log-probabilities of the tokens up to the first end token, that one included."""
    tokens = answer.outputs[index].tokens
    end = next((place for place, token in enumerate(tokens) if token.is_end), len(tokens))
    return [float(token.logprob) for token in tokens[: end + 1]]  # type: ignore[arg-type]


def test_an_answer_s_own_writing_is_read(llm: LLM) -> None:
    written = PARAMS.model_copy(update={"scorer": "written", "selector": "last-10"})
    model = DiseModel(llm, PARAMS)
    estimator = DiseEstimator(model, ScoringParams(scorer="written", selector="last-10"))
    told = run(model, estimator).estimations[("sequence", "written:last-10")]
    scores = [answer.outputs[0].score.value for answer in llm.generate(PROMPTS, written)]
    np.testing.assert_allclose(-np.array(told), scores, atol=1e-5)


def test_their_prr_is_ours(benchmark: Any) -> None:
    """Their areas are exactly one minus ours. They compare with the mean of 1,000 shuffles where we
    compare with the share of wrong answers, so the ratios differ by the shuffles' noise.
    """
    is_right = np.array(benchmark.gen_metrics["sequence", "countdown-robust-1"]) == 1
    assert len(is_right) == 32
    names = [name for _, name in benchmark.estimations]
    assert names == ["Perplexity", "MaximumSequenceProbability", "dise:last-10", "shadow:last-10"]
    for name in names:
        scores = -np.array(benchmark.estimations["sequence", name])
        key = ("sequence", name, "countdown-robust-1")
        assert benchmark.metrics[*key, "prr"] == pytest.approx(1 - aurc(scores, is_right))
        for share, metric in ((1.0, "prr_normalized"), (0.5, "prr_0.5_normalized")):
            ours = prr(scores, is_right, share)
            assert benchmark.metrics[*key, metric] == pytest.approx(ours, abs=0.08)


def test_their_estimators_see_our_log_probabilities_and_ours_our_scores(
    benchmark: Any, answers: list[RequestOutput], llm: LLM
) -> None:
    outputs = [answer.outputs[0] for answer in answers]
    logprobs = [logprobs_of(answer) for answer in answers]
    ids = [output.token_ids for output in outputs]
    shadow = llm.score(benchmark.data.x, ids, ScoringParams(scorer="shadow"))
    for name, expected in (
        ("Perplexity", [-sum(each) / len(each) for each in logprobs]),
        ("MaximumSequenceProbability", [-sum(each) for each in logprobs]),
        ("dise:last-10", [-output.score.value for output in outputs]),
        ("shadow:last-10", [-answer.outputs[0].score.value for answer in shadow]),
    ):
        assert benchmark.estimations["sequence", name] == pytest.approx(expected, abs=1e-4)
    assert benchmark.stats["greedy_texts"] == [output.text for output in outputs]
    asked = zip(benchmark.data.x, outputs, strict=True)
    right = [is_correct(output.text, parse_prompt(prompt)) for prompt, output in asked]
    assert benchmark.gen_metrics["sequence", "countdown-robust-1"] == right


def test_entropies_are_those_of_the_models_own_distributions(llm: LLM) -> None:
    model = DiseModel(llm, PARAMS)
    manager = run(model, theirs.MeanTokenEntropy())
    expected = []
    for answer in llm.generate(PROMPTS, PARAMS):
        prompt, response = answer.prompt_token_ids, answer.outputs[0].token_ids
        positions = np.arange(len(logprobs_of(answer))) + len(prompt)
        ids = np.array([*prompt, *response])
        vocabulary = TopLogProbs(llm.predictor.info.vocab_size)
        [reading] = llm.predictor.read([Read(ids, positions, vocabulary)])
        logprobs = reading.logprobs.astype(np.float64)
        expected.append(-(np.exp(logprobs) * logprobs).sum(axis=1).mean())
    found = manager.estimations["sequence", "MeanTokenEntropy"]
    assert found == pytest.approx(expected, abs=1e-5)


def test_samples_are_drawn_as_the_library_draws_them(llm: LLM) -> None:
    sampling = SamplingParams(max_tokens=48, block_length=16, seed=3, temperature=0.7)
    model = DiseModel(llm, PARAMS, sampling=sampling)
    manager = run(model, theirs.MonteCarloSequenceEntropy(), theirs.LexicalSimilarity("rougeL"))
    drawn = sampling.model_copy(update={"n": 3})
    expected = [
        -np.mean([sum(logprobs_of(answer, index)) for index in range(3)])
        for answer in llm.generate(PROMPTS, drawn)
    ]
    found = manager.estimations["sequence", "MonteCarloSequenceEntropy"]
    assert found == pytest.approx(expected, abs=1e-4)
    similarities = manager.estimations["sequence", "LexicalSimilarity_rougeL"]
    assert all(-1 <= similarity <= 0 for similarity in similarities)


def test_a_black_box_estimator_by_their_shortest_way(llm: LLM) -> None:
    model = DiseModel(llm, SamplingParams(block_length=16, max_tokens=48, seed=0))
    found = estimate_uncertainty(model, theirs.LexicalSimilarity("rougeL"), PROMPTS[0])
    assert -1 <= found.uncertainty <= 0
    assert found.generation_text == llm.generate(PROMPTS[0], PARAMS)[0].outputs[0].text
    assert found.model_path == llm.predictor.info.name


def test_the_managers_length_counts_unless_the_params_set_one(llm: LLM) -> None:
    unset = SamplingParams(block_length=16, seed=0)
    for params, length in ((unset, 24), (PARAMS, 48)):
        manager = run(DiseModel(llm, params), theirs.Perplexity(), max_new_tokens=24)
        expected = llm.generate(PROMPTS, SamplingParams(block_length=16, seed=0, max_tokens=length))
        assert manager.stats["greedy_texts"] == [each.outputs[0].text for each in expected]


def test_generated_texts(llm: LLM) -> None:
    model = DiseModel(llm, PARAMS)
    [several] = model.generate_texts([PROMPTS[0]], n=2, temperature=0.5, do_sample=True)
    assert len(several) == 2
    chats = [[{"role": "user", "content": PROMPTS[0]}]]
    assert model.generate_texts(chats, num_return_sequences=1) == model.generate_texts(PROMPTS[:1])
    with pytest.raises(InputError, match="no generation argument 'output_scores'"):
        model.generate_texts(PROMPTS, output_scores=True)
    for call in (model, model.generate):
        with pytest.raises(InputError, match="no logits of next tokens"):
            call(input_ids=[1])


def test_an_estimators_name_says_what_it_computes_and_one_that_cannot_be_is_refused(
    llm: LLM,
) -> None:
    model = DiseModel(llm, PARAMS)
    assert str(DiseEstimator(model)) == "dise:last-10"
    several = ScoringParams(scorer="mc", scorer_settings={"num_samples": 2})
    assert str(DiseEstimator(model, several)) == "mc:response:num_samples=2"
    for params, message in (
        (ScoringParams(selector="last"), "unknown selector 'last'"),
        (ScoringParams(scorer="ar-perplexity"), "needs an auto-regressive judge"),
    ):
        with pytest.raises(InputError, match=message):
            DiseEstimator(model, params)


def test_the_grader_refuses_what_it_has_no_question_for() -> None:
    graded = Graded(load("countdown-short", limit=2))
    with pytest.raises(InputError, match="'1,2 -> 3' is not the prompt of a question"):
        graded({"input_texts": ["1,2 -> 3"], "greedy_texts": ["3"]}, [""])
    with pytest.raises(InputError, match="ranked, not graded"):
        Graded(load("countdown-choice", limit=2))


def test_the_example_prints_both_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["with_polygraph.py", "--limit", "6"])
    with_polygraph.main()
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d+ of 6 right", first)
    assert [row.split()[0] for row in rows][:2] == ["Perplexity", "MaximumSequenceProbability"]
    assert all(len(row.split()) == 5 for row in rows)
