"""A finished text that is given is as sure as one that the model wrote, at every door."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import httpx
import numpy as np
import pytest
from embedded_models.countdown.problems import held_out_problems, is_correct
from sklearn.metrics import roc_auc_score

from dise_core import LLM, AsyncLLM, RequestOutput, SamplingParams, ScoringParams
from tests.app.conftest import Run
from tests.app.serving import serving

PROBLEMS = held_out_problems(Random(2), 50)
PROMPTS = [problem.prompt for problem in PROBLEMS]
WRITTEN = SamplingParams(max_tokens=48, block_length=16, temperature=1.0, n=2, seed=0)
SCORERS = ("dise", "shadow")


@pytest.fixture(scope="module", params=["countdown", "countdown-blocks"])
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def written(model: str) -> dict[str, list[RequestOutput]]:
    """Answers of the model, by the scorer that scored them as they were written."""
    llm, params = LLM(model), WRITTEN
    if model == "countdown-blocks":
        params = SamplingParams(**params.model_dump(exclude={"block_length"}, exclude_unset=True))
    return {
        scorer: llm.generate(PROMPTS, params.model_copy(update={"scorer": scorer}))
        for scorer in SCORERS
    }


def rows(answers: list[RequestOutput]) -> list[tuple[str, str, float, bool]]:
    return [
        (prompt.prompt, output.text, output.score.value, is_correct(output.text, prompt))
        for prompt, answer in zip(PROBLEMS, answers, strict=True)
        for output in answer.outputs
        if output.text
    ]


def by_python(model: str, scorer: str, pairs: list[tuple[str, str]], _: Path) -> list[float]:
    prompts, texts = zip(*pairs, strict=True)
    answers = LLM(model).score(list(prompts), list(texts), ScoringParams(scorer=scorer))
    return [answer.outputs[0].score.value for answer in answers]


def by_server(model: str, scorer: str, pairs: list[tuple[str, str]], _: Path) -> list[float]:
    with serving(AsyncLLM(model)) as url, httpx.Client(base_url=url, timeout=60) as client:
        bodies = ({"prompt": p, "response": text, "scorer": scorer} for p, text in pairs)
        answers = [client.post("/v1/score", json=body).json() for body in bodies]
    return [answer["data"][0]["score"]["value"] for answer in answers]


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("door", ["python", "command", "server"])
def test_given_texts_tell_right_from_wrong_as_well_as_written_ones(
    model: str,
    scorer: str,
    door: str,
    written: dict[str, list[RequestOutput]],
    dise: Callable[..., Run],
    tmp_path: Path,
) -> None:
    prompts, texts, values, are_right = zip(*rows(written[scorer]), strict=True)
    pairs = list(zip(prompts, texts, strict=True))
    if door == "command":
        lines = [json.dumps({"prompt": prompt, "response": text}) for prompt, text in pairs]
        (tmp_path / "given.jsonl").write_text("\n".join(lines))
        files = ("--input", tmp_path / "given.jsonl", "--output", tmp_path / "scored.jsonl")
        assert dise("score", "--model", model, "--scorer", scorer, *files).code == 0
        records = map(json.loads, (tmp_path / "scored.jsonl").read_text().splitlines())
        given = [record["outputs"][0]["score"]["value"] for record in records]
    else:
        given = {"python": by_python, "server": by_server}[door](model, scorer, pairs, tmp_path)
    assert abs(roc_auc_score(are_right, given) - roc_auc_score(are_right, values)) < 0.02
    assert np.abs(np.array(given) - np.array(values)).mean() < 0.05


def exact_canvas(model: str) -> Iterator[tuple[LLM, str, RequestOutput]]:
    """Yield answers whose canvas had room for one end token."""
    llm = LLM(model)
    for prompt in PROMPTS[:10]:
        [answer] = llm.generate(prompt, SamplingParams(max_tokens=48))
        text = [
            t for t in answer.outputs[0].token_ids if t not in llm.predictor.info.special.eos_ids
        ]
        params = SamplingParams(max_tokens=len(text) + 1, tokens_per_step=1, logprobs=1)
        [answer] = llm.generate(prompt, params)
        if answer.outputs[0].token_ids[:-1] == tuple(text):
            yield llm, prompt, answer


@pytest.mark.parametrize("scorer", ["dise", "shadow", "interleaved"])
def test_a_text_scores_as_it_did_on_a_canvas_with_one_end_token(model: str, scorer: str) -> None:
    params, count = ScoringParams(scorer=scorer, logprobs=1), 0
    for llm, prompt, answer in exact_canvas(model):
        [output] = answer.outputs
        [whole] = llm.score(prompt, [output.token_ids], params)
        [given] = llm.score(prompt, output.text, params)
        [score], [expected] = given.outputs, whole.outputs
        assert score.score.value == pytest.approx(expected.score.value, abs=1e-4)
        assert score.token_ids == output.token_ids[:-1]
        for token, other in zip(score.tokens, expected.tokens, strict=False):
            assert token.logprob == pytest.approx(other.logprob, abs=1e-4)
        if scorer == "dise":
            assert score.score.value == pytest.approx(output.score.value, abs=1e-4)
        count += 1
    assert count >= 5
