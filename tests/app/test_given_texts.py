"""A finished text that is given is as sure as one that the model wrote, at every door."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import httpx
import pytest
from embedded_models.countdown.problems import held_out_problems

from dise_core import LLM, AsyncLLM, RequestOutput, SamplingParams, ScoringParams
from tests.app.serving import serving
from tests.commands import Dise

PROMPTS = [problem.prompt for problem in held_out_problems(Random(2), 10)]


@pytest.fixture(scope="module", params=["countdown", "countdown-blocks"])
def written(request: pytest.FixtureRequest) -> tuple[LLM, list[tuple[str, RequestOutput]]]:
    """Return a model with its answers whose canvas had room for one end token."""
    llm = LLM(request.param)
    return llm, list(exact_canvas(llm))


def exact_canvas(llm: LLM) -> Iterator[tuple[str, RequestOutput]]:
    ends = llm.predictor.info.special.eos_ids
    for prompt in PROMPTS:
        [answer] = llm.generate(prompt, SamplingParams(max_tokens=48))
        text = [token for token in answer.outputs[0].token_ids if token not in ends]
        params = SamplingParams(max_tokens=len(text) + 1, tokens_per_step=1, logprobs=1)
        [answer] = llm.generate(prompt, params)
        if answer.outputs[0].token_ids[:-1] == tuple(text):
            yield prompt, answer


@pytest.mark.parametrize("scorer", ["dise", "shadow", "interleaved"])
def test_a_text_scores_as_it_did_on_a_canvas_with_one_end_token(
    written: tuple[LLM, list[tuple[str, RequestOutput]]], scorer: str
) -> None:
    (llm, answers), params = written, ScoringParams(scorer=scorer, logprobs=1)
    assert len(answers) >= 5
    for prompt, answer in answers:
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


def test_a_candidate_that_is_finished_scores_as_the_text_does_at_every_door(
    dise: Dise, tmp_path: Path
) -> None:
    """Else nothing follows it: published figures of candidates are read so."""
    llm, params = LLM("countdown"), ScoringParams(selector="response")
    [answer] = llm.score(PROMPTS[0], "1+2=3", params)
    [cut] = llm.score(PROMPTS[0], "1+2=3", params, finished=False)
    text, start = answer.outputs[0].score.value, cut.outputs[0].score.value
    assert abs(text - start) > 0.01
    given = {"prompt": PROMPTS[0], "candidates": ["1+2=3", "1+3=4"]}
    (tmp_path / "in.jsonl").write_text(json.dumps(given) + "\n")
    asked = given | {"selector": "response"}
    with serving(AsyncLLM("countdown")) as url, httpx.Client(base_url=url, timeout=60) as client:
        for finished, flags, expected in (
            (None, [], start),
            (False, ["--unfinished"], start),
            (True, ["--finished"], text),
        ):
            ranked = llm.rank(PROMPTS[0], given["candidates"], params, finished=finished)
            told = [output.to_dict() for output in ranked.outputs]
            several = llm.rank([PROMPTS[0]], [given["candidates"]], params, finished=finished)
            told += [output.to_dict() for output in several[0].outputs]
            told += client.post("/v1/rank", json=asked | {"finished": finished}).json()["data"]
            options = ("--selector", "response", *flags)
            run = dise("rank", "--prompt", PROMPTS[0], "1+2=3", "1+3=4", *options, "--json")
            told += json.loads(run.out)["outputs"]
            run = dise("rank", "--input", tmp_path / "in.jsonl", "--output", "-", *options)
            told += json.loads(run.out)["outputs"]
            values = [each["score"]["value"] for each in told if each["index"] == 0]
            assert values == [pytest.approx(expected, abs=1e-4)] * 5


def test_the_server_tells_what_each_token_had_when_it_was_written() -> None:
    params = SamplingParams(max_tokens=16, scorer="written", logprobs=0)
    [answer] = LLM("countdown").generate(PROMPTS[0], params)
    [output] = answer.outputs
    asked = {"model": "countdown", "max_tokens": 16, "dise": {"scorer": "written"}}
    with serving(AsyncLLM("countdown")) as url, httpx.Client(base_url=url, timeout=60) as client:
        chat = asked | {"messages": [{"role": "user", "content": PROMPTS[0]}]}
        choices = [
            client.post(path, json=body).json()["choices"][0]["dise"]
            for path, body in (
                ("/v1/chat/completions", chat | {"logprobs": True}),
                (
                    "/v1/completions",
                    asked | {"prompt": f"<|user|>{PROMPTS[0]}<|assistant|>", "logprobs": 1},
                ),
            )
        ]
    for choice in choices:
        assert choice["score"]["value"] == pytest.approx(output.score.value, abs=1e-4)
        expected = [token.written for token in output.tokens][: len(choice["tokens"])]
        assert [token["written"] for token in choice["tokens"]] == pytest.approx(expected, abs=1e-4)
