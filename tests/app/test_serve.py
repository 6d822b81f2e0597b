"""A really started `dise serve` on the embedded model, asked with the official openai client,
with plain HTTP, and as docs/serving.md and docs/reference/http.md ask.
"""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from dise_core import LLM, SamplingParams, ScoringParams
from tests.app.serving import ServeProcess
from tests.pages import ROOT

PROBLEM = "83,18,75 -> 10"
ANSWER = "18+75=93,93-83=10<answer>18+75-83</answer>"
DISE = {"block_length": 12, "tokens_per_step": 3, "selector": "response"}
MESSAGES = [{"role": "user", "content": PROBLEM}]
CHAT: dict[str, Any] = {"model": "countdown", "messages": MESSAGES, "max_tokens": 36}
SAMPLING = SamplingParams(
    max_tokens=36, block_length=12, tokens_per_step=3, selector="response", seed=7
)


@pytest.fixture(scope="module")
def server() -> Iterator[ServeProcess]:
    with ServeProcess() as process:
        yield process


@pytest.fixture(scope="module")
def url(server: ServeProcess) -> str:
    return server.url


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("countdown")


def test_chat_gives_the_librarys_answer_with_score_tokens_and_cost(
    client: openai.OpenAI, llm: LLM
) -> None:
    answer = client.chat.completions.create(
        **CHAT, seed=7, logprobs=True, top_logprobs=2, extra_body={"dise": DISE}
    )
    [expected] = llm.generate(PROBLEM, SAMPLING)
    [output] = expected.outputs
    [choice] = answer.choices
    assert choice.message.content == output.text
    assert choice.finish_reason == output.finish_reason
    assert answer.usage.prompt_tokens == expected.usage.prompt_tokens
    assert answer.usage.completion_tokens == expected.usage.completion_tokens
    assert choice.dise["score"]["value"] == pytest.approx(output.score.value, abs=1e-5)
    assert choice.dise["score"]["selector"] == "response"
    assert [token["is_end"] for token in choice.dise["tokens"]].count(True) == 1
    assert len(choice.dise["tokens"]) == answer.usage.completion_tokens + 1
    assert answer.dise["nfe"] == expected.usage.nfe
    written = [token for token in output.tokens if not token.is_end]
    assert [entry.token for entry in choice.logprobs.content] == [token.text for token in written]
    assert [entry.logprob for entry in choice.logprobs.content] == pytest.approx(
        [token.logprob for token in written], abs=1e-4
    )
    assert len(choice.logprobs.content[0].top_logprobs) == 2


def test_completions_take_the_prompt_as_it_is(client: openai.OpenAI, llm: LLM) -> None:
    raw = f"<|user|>{PROBLEM}<|assistant|>"
    to: Any = {"model": "countdown", "prompt": [raw, raw], "max_tokens": 36, "logprobs": 1}
    answer = client.completions.create(**to, seed=7, extra_body={"dise": DISE})
    [expected] = llm.generate(PROBLEM, SAMPLING)
    assert [choice.text for choice in answer.choices] == [expected.outputs[0].text] * 2
    assert [choice.index for choice in answer.choices] == [0, 1]
    logprobs = answer.choices[0].logprobs
    assert "".join(logprobs.tokens) == expected.outputs[0].text
    assert logprobs.text_offset[1] == len(logprobs.tokens[0])


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"stop": ["<answer>"]},
        {"length": "daedal", "length_settings": {"max_gen_length": 64}},
        {"length": "dise-flexible", "length_settings": {"max_iterations": 3}},
    ],
)
def test_a_stream_of_chat_makes_the_same_text(
    client: openai.OpenAI, extra: dict[str, object]
) -> None:
    options = {key: value for key, value in extra.items() if key != "stop"}
    asked = {**CHAT, "stop": extra.get("stop"), "extra_body": {"dise": DISE | options}}
    whole = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert ("<answer>" in text) == ("stop" not in extra)
    assert chunks[0].choices[0].delta.role == "assistant"
    last = next(chunk for chunk in reversed(chunks) if chunk.choices)
    assert last.choices[0].finish_reason == whole.choices[0].finish_reason
    assert last.choices[0].dise["score"] == whole.choices[0].dise["score"]
    assert chunks[-1].usage == whole.usage
    parts = sum(1 for chunk in chunks for choice in chunk.choices if choice.delta.content)
    assert parts == 1 if extra.get("length") == "dise-flexible" else parts > 2


def test_a_stream_of_completions_and_of_several_answers(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model="countdown", prompt="1,2 -> 3", max_tokens=12, n=2, temperature=1, stream=True
        )
    )
    texts = {
        index: "".join(c.text for chunk in chunks for c in chunk.choices if c.index == index)
        for index in (0, 1)
    }
    assert all(texts.values())
    assert sorted(c.index for chunk in chunks for c in chunk.choices if c.finish_reason) == [0, 1]


def test_a_canvas_stream_shows_every_committed_token(client: openai.OpenAI, llm: LLM) -> None:
    chunks = client.chat.completions.create(
        **CHAT, stream=True, extra_body={"dise": DISE | {"stream": "canvas"}}
    )
    [first, *canvases] = [
        chunk.dise["canvas"] for chunk in chunks if "canvas" in (getattr(chunk, "dise", None) or {})
    ]
    assert (first["index"], first["num_tokens"], first["is_fresh"]) == (0, 36, True)
    assert (first["committed"], first["text"]) == ([], "")
    committed = [token for canvas in canvases for token in canvas["committed"]]
    assert len({token["position"] for token in committed}) == len(committed) == 33
    ids = llm.generate(PROBLEM, SAMPLING)[0].outputs[0].token_ids
    for token in committed:
        assert ids[token["position"]] == token["id"]
        assert token["is_end"] == (token["id"] in llm.predictor.info.special.eos_ids)


def test_score_and_rank_give_the_librarys_values(server: ServeProcess, llm: LLM) -> None:
    responses = [ANSWER, "1+1=2"]
    settings = {"scorer": "mc", "scorer_settings": {"num_samples": 4}, "selector": "response-text"}
    params = ScoringParams(**settings)
    scored = httpx.post(
        f"{server.url}/v1/score", json={"prompt": PROBLEM, "response": responses, **settings}
    ).json()
    expected = llm.score([PROBLEM] * 2, responses, params)
    values = [answer.outputs[0].score.value for answer in expected]
    assert [item["score"]["value"] for item in scored["data"]] == pytest.approx(values, abs=1e-4)
    assert scored["dise"]["nfe"] == sum(answer.usage.nfe for answer in expected)
    ranked = httpx.post(
        f"{server.url}/v1/rank", json={"prompt": PROBLEM, "candidates": responses, **settings}
    ).json()
    assert [item["index"] for item in ranked["data"]] == sorted((0, 1), key=lambda i: -values[i])


def test_health_metrics_and_ids(server: ServeProcess) -> None:
    health = httpx.get(f"{server.url}/health", headers={"X-Request-ID": "abc-1"})
    assert health.json()["status"] == "ok"
    assert health.headers["x-request-id"] == "abc-1"
    renamed = httpx.get(f"{server.url}/health", headers={"X-Request-ID": 'bad "id"'})
    assert len(renamed.headers["x-request-id"]) == 32
    nowhere = httpx.post(f"{server.url}/v1/nothing", json={})
    assert (nowhere.status_code, nowhere.json()["error"]["type"]) == (404, "not_found_error")
    assert nowhere.json()["error"]["message"] == (
        "There is no path '/v1/nothing' here. GET /openapi.json lists those that there are."
    )
    httpx.post(f"{server.url}/v1/score", json={"prompt": PROBLEM, "response": ANSWER})
    metrics = httpx.get(f"{server.url}/metrics").text
    values = {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
        for line in metrics.splitlines()
        if line[0] != "#"
    }
    assert values['dise_requests_total{path="/v1/score",status="200"}'] >= 1
    assert values["dise_nfe_total"] > 1
    assert values['dise_score_count{scorer="dise"}'] >= 1
    assert values["dise_requests_running"] == 0
    assert math.isfinite(values['dise_request_seconds_sum{path="/v1/score"}'])


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "json"])
def test_a_body_that_does_not_say_that_it_is_json_is_refused(
    server: ServeProcess, kind: str | None
) -> None:
    content = b'{"prompt": "1,2 -> 3", "response": "1+2=3"}'
    headers = {} if kind is None else {"Content-Type": kind}
    refused = httpx.post(f"{server.url}/v1/score", content=content, headers=headers)
    assert refused.status_code == 415
    assert (kind or "missing") in refused.json()["error"]["message"]
    assert "send JSON with Content-Type: application/json" in refused.json()["error"]["message"]
    for named in ("application/json; charset=utf-8", "Application/JSON", "application/x.y+json"):
        headers = {"Content-Type": named}
        taken = httpx.post(f"{server.url}/v1/score", content=content, headers=headers)
        assert taken.status_code == 200, taken.text


def test_a_server_tells_where_it_is_and_logs_what_was_asked_until_ctrl_c() -> None:
    process = ServeProcess()
    for path in ("/health", "/v1/models/none", "/page/app.js", "/no%22where?key=secret"):
        httpx.get(f"{process.url}{path}", headers={"X-Request-ID": "mine"})
    assert process.stop(signal.SIGINT) == 130
    records = [json.loads(line) for line in process.log]
    assert [(record["id"], record["path"], record["status"]) for record in records] == [
        ("mine", "/health", 200),
        ("mine", "/v1/models/none", 404),
        ("mine", "/page/app.js", 200),
        ("mine", '/no"where', 404),
    ]
    address = re.escape(process.url)
    assert re.fullmatch(
        rf"dise: listening on {address}, with 503 until countdown is loaded\n"
        rf"dise: countdown is ready after \d+\.\d s, without a key, at {address}\n",
        "".join(process.said),
    )


PAGE = "".join((ROOT / "docs" / name).read_text() for name in ("serving.md", "reference/http.md"))
WRITTEN_FOR = "http://127.0.0.1:8000"
CURLS = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("block", CURLS)
def test_every_curl_of_the_page_gets_an_answer(server: ServeProcess, block: str) -> None:
    script = block.replace(WRITTEN_FOR, server.url).replace("curl -s", "curl -s --fail")
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if "metrics" not in block:
        assert json.loads(done.stdout)


def test_every_python_example_of_the_page_prints_what_it_promises(
    server: ServeProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    for block in PYTHON:
        capsys.readouterr()
        exec(compile(block.replace(WRITTEN_FOR, server.url), "serving.md", "exec"), names)
        assert capsys.readouterr().out.strip()
    names["client"].close()
