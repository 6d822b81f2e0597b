"""A really started `dise serve` on the embedded model, asked with the official openai client and
with plain HTTP.
"""

from __future__ import annotations

import json
import math
import signal
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from dise_core import LLM, SamplingParams, ScoringParams
from tests.app.serving import ServeProcess

PROBLEM = "83,18,75 -> 10"
ANSWER = "18+75=93,93-83=10<answer>18+75-83</answer>"
CHAT = [{"role": "user", "content": PROBLEM}]
DISE = {"block_length": 12, "tokens_per_step": 3, "selector": "response"}
SAMPLING = SamplingParams(
    max_tokens=36, block_length=12, tokens_per_step=3, selector="response", seed=7
)


@pytest.fixture(scope="module")
def server() -> Iterator[ServeProcess]:
    process = ServeProcess()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def client(server: ServeProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("countdown")


def test_models(client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    assert (model.id, model.owned_by) == ("countdown", "dise")


def test_chat_gives_the_librarys_answer_with_score_tokens_and_cost(
    client: openai.OpenAI, llm: LLM
) -> None:
    answer = client.chat.completions.create(
        model="countdown",
        messages=CHAT,
        max_tokens=36,
        seed=7,
        logprobs=True,
        top_logprobs=2,
        extra_body={"dise": DISE},
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
    answer = client.completions.create(
        model="countdown",
        prompt=[raw, raw],
        max_tokens=36,
        logprobs=1,
        seed=7,
        extra_body={"dise": DISE},
    )
    [expected] = llm.generate(PROBLEM, SAMPLING)
    assert [choice.text for choice in answer.choices] == [expected.outputs[0].text] * 2
    assert [choice.index for choice in answer.choices] == [0, 1]
    logprobs = answer.choices[0].logprobs
    assert "".join(logprobs.tokens) == expected.outputs[0].text
    assert logprobs.text_offset[1] == len(logprobs.tokens[0])


def test_completions_take_token_ids(client: openai.OpenAI, llm: LLM) -> None:
    ids = llm.predictor.tokenizer.encode_chat(CHAT).tolist()
    answer = client.completions.create(
        model="countdown", prompt=ids, max_tokens=36, extra_body={"dise": DISE}
    )
    assert answer.choices[0].text == llm.generate(PROBLEM, SAMPLING)[0].outputs[0].text


def test_n_and_best_of_give_the_best_by_score(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="countdown",
        messages=CHAT,
        max_tokens=36,
        n=2,
        temperature=1.5,
        seed=3,
        extra_body={"best_of": 5, "dise": DISE},
    )
    everything = client.chat.completions.create(
        model="countdown",
        messages=CHAT,
        max_tokens=36,
        n=5,
        temperature=1.5,
        seed=3,
        extra_body={"dise": DISE},
    )
    scores = [choice.dise["score"]["value"] for choice in everything.choices]
    assert scores == sorted(scores, reverse=True)
    assert [choice.dise["score"]["value"] for choice in answer.choices] == pytest.approx(
        scores[:2], abs=1e-5
    )
    assert [choice.index for choice in answer.choices] == [0, 1]


@pytest.mark.parametrize("stream", [False, True])
def test_two_requests_without_a_seed_differ_and_the_seed_that_is_told_repeats_each(
    client: openai.OpenAI, stream: bool
) -> None:
    """At this temperature two texts of 36 tokens are the same about once in 10^50 runs."""
    asked: Any = {
        "model": "countdown",
        "messages": CHAT,
        "max_tokens": 36,
        "temperature": 50,
        "n": 2,
        "extra_body": {"dise": DISE},
    }

    def answer(**more: Any) -> tuple[list[list[int]], list[int], list[int]]:
        made = client.chat.completions.create(**asked, **more, stream=stream)
        chunks = list(made) if stream else [made]
        said = [
            choice.dise
            for chunk in chunks
            for choice in chunk.choices
            if getattr(choice, "dise", None)
        ]
        return (
            [[t["id"] for t in each["tokens"]] for each in said],
            [e["seed"] for e in said],
            [e["sample"] for e in said],
        )

    one, other = answer(), answer()
    assert one[0] != other[0]
    for texts, seeds, samples in (one, other):
        assert (len(set(seeds)), sorted(samples)) == (1, [0, 1])
        assert answer(seed=seeds[0]) == (texts, seeds, samples)


def test_forbidden_tokens_over_http(client: openai.OpenAI) -> None:
    asked: Any = {"model": "countdown", "messages": CHAT, "max_tokens": 12}
    plain = client.chat.completions.create(**asked).choices[0].dise["tokens"]
    forbidden = {"forbidden_token_ids": [plain[0]["id"]]}
    answer = client.chat.completions.create(**asked, extra_body={"dise": forbidden})
    assert plain[0]["id"] not in [token["id"] for token in answer.choices[0].dise["tokens"]]


def test_rank_reports_likely_tokens_over_http(server: ServeProcess) -> None:
    body = {"prompt": PROBLEM, "candidates": ["18+75-83", "1"], "logprobs": 2}
    data = httpx.post(f"{server.url}/v1/rank", json=body).json()["data"]
    assert all(len(token["top_logprobs"]) == 2 for item in data for token in item["tokens"])


def test_an_answer_written_with_a_cache_says_so(client: openai.OpenAI) -> None:
    asked = {"model": "countdown", "messages": CHAT, "max_tokens": 36}
    answer = client.chat.completions.create(**asked, extra_body={"dise": DISE | {"cache": "dual"}})
    assert (answer.dise["cache"], answer.dise["is_approximate"]) == ("dual", True)
    assert "cache" not in client.chat.completions.create(**asked, extra_body={"dise": DISE}).dise


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"length": "daedal", "length_settings": {"max_gen_length": 64}},
        {"length": "dise-flexible", "length_settings": {"max_iterations": 3}},
    ],
)
def test_a_stream_of_chat_makes_the_same_text(
    client: openai.OpenAI, extra: dict[str, object]
) -> None:
    asked = {
        "model": "countdown",
        "messages": CHAT,
        "max_tokens": 36,
        "extra_body": {"dise": DISE | extra},
    }
    whole = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
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


def test_stop_texts_cut_whole_and_streamed_answers_alike(client: openai.OpenAI) -> None:
    asked = {
        "model": "countdown",
        "messages": CHAT,
        "max_tokens": 36,
        "stop": ["<answer>"],
        "extra_body": {"dise": DISE},
    }
    whole = client.chat.completions.create(**asked).choices[0]
    streamed = client.chat.completions.create(**asked, stream=True)
    assert "<answer>" not in whole.message.content
    assert whole.finish_reason == "stop"
    assert (
        "".join(c.delta.content or "" for chunk in streamed for c in chunk.choices)
        == whole.message.content
    )


def test_a_canvas_stream_shows_every_committed_token(client: openai.OpenAI, llm: LLM) -> None:
    asked = {"model": "countdown", "messages": CHAT, "max_tokens": 36, "stream": True}
    chunks = list(
        client.chat.completions.create(**asked, extra_body={"dise": DISE | {"stream": "canvas"}})
    )
    canvases = [
        chunk.dise["canvas"] for chunk in chunks if "canvas" in (getattr(chunk, "dise", None) or {})
    ]
    assert canvases[0] == {
        "index": 0,
        "num_tokens": 36,
        "is_fresh": True,
        "committed": [],
        "text": "",
    }
    committed = {
        token["position"]: token["id"] for canvas in canvases for token in canvas["committed"]
    }
    ids = llm.generate(PROBLEM, SAMPLING)[0].outputs[0].token_ids
    assert len(committed) == 33
    ends = {
        token["position"] for canvas in canvases for token in canvas["committed"] if token["is_end"]
    }
    assert ends == {
        position for position in committed if ids[position] in llm.predictor.info.special.eos_ids
    }
    assert all(ids[position] == token_id for position, token_id in committed.items())


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


def test_the_score_alone(server: ServeProcess) -> None:
    asked = {"prompt": PROBLEM, "response": ANSWER}
    answers = [
        httpx.post(f"{server.url}/v1/score", json=asked | extra).json()["data"][0]
        for extra in ({"logprobs": None}, {})
    ]
    assert answers[0]["score"]["value"] == pytest.approx(answers[1]["score"]["value"], abs=1e-5)
    assert [len(answer["tokens"]) > 0 for answer in answers] == [False, True]


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "message"),
    [
        ("chat/completions", "{", 400, None, "the body is not JSON"),
        ("chat/completions", {}, 400, "messages", "Field required"),
        (
            "chat/completions",
            {"messages": CHAT, "max_tokens": "many"},
            400,
            "max_tokens",
            "valid integer",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "max_tokens": 0},
            400,
            "max_tokens",
            "greater than or equal to 1",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "dise": {"scorre": "x"}},
            400,
            "dise.scorre",
            "Did you mean 'scorer'?",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "dise": {"scorer": "x"}},
            400,
            "scorer",
            "unknown scorer 'x'",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "dise": {"selector": "last_3"}},
            400,
            "selector",
            "unknown selector",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "model": "gpt"},
            404,
            "model",
            "no model 'gpt' here, only 'countdown'",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "max_tokens": 510},
            400,
            None,
            "longer than the model's limit of 512",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "max_tokens": 5000},
            400,
            "max_tokens",
            "above the server's 4096",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "n": 2},
            400,
            "temperature",
            "would all be the same",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "n": 2, "best_of": 1},
            400,
            None,
            "best_of=1 is less than n=2",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "temperature": -1},
            400,
            "temperature",
            "greater than or equal to 0",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "presence_penalty": 1},
            400,
            None,
            "presence_penalty is not supported",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "tools": [{"type": "function"}]},
            400,
            "tools",
            "tools is not supported: this server calls no tools; leave it out, or give []",
        ),
        (
            "chat/completions",
            {"messages": [{"role": "system", "content": "x"}]},
            400,
            "messages",
            "chat template refuses",
        ),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": "hello"}]},
            400,
            None,
            "vocabulary has no 'h'",
        ),
        (
            "chat/completions",
            {"messages": CHAT, "stream": True, "dise": {"scorer": "x"}},
            400,
            "scorer",
            "unknown scorer",
        ),
        (
            "completions",
            {"prompt": [[1], [2]], "stream": True},
            400,
            "stream",
            "stream takes one prompt",
        ),
        (
            "completions",
            {"prompt": [9999]},
            400,
            "token_ids",
            "token id 9999 at position 0 is outside",
        ),
        ("completions", {"prompt": []}, 400, "prompt", "the prompt is empty"),
        ("completions", {"prompt": [PROBLEM, ""]}, 400, "prompt", "prompt 2: the prompt is empty"),
        ("score", {"response": ["1", ""]}, 400, "response", "text 2: the response is empty"),
        ("completions", {"prompt": [[1]] * 257}, 400, None, "1 to 256 prompts, not 257"),
        ("score", {"prompt": PROBLEM, "response": ""}, 400, "response", "the response is empty"),
        (
            "score",
            {"prompt": PROBLEM, "response": "1", "scorer": "ar-perplexity"},
            400,
            "judge",
            "needs an auto-regressive",
        ),
        (
            "score",
            {
                "prompt": PROBLEM,
                "response": "1",
                "scorer": "mc",
                "scorer_settings": {"num_samples": 10**9},
            },
            400,
            "num_samples",
            "less than or equal to 1000000",
        ),
        ("rank", {"prompt": PROBLEM, "candidates": []}, 400, "candidates", "at least 1 item"),
        ("nothing", {}, 404, None, "Not Found"),
    ],
)
def test_bad_requests_get_errors_in_openais_shape(
    server: ServeProcess, path: str, body: object, status: int, param: str | None, message: str
) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    answer = httpx.post(
        f"{server.url}/v1/{path}", content=content, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert message in error["message"]
    assert param is None or error["param"] == param
    assert error["type"] == ("not_found_error" if status == 404 else "invalid_request_error")


def test_the_openai_client_raises_its_own_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model 'gpt' here"):
        client.chat.completions.create(model="gpt", messages=CHAT)
    with pytest.raises(openai.BadRequestError, match="unknown scorer"):
        client.chat.completions.create(
            model="countdown", messages=CHAT, extra_body={"dise": {"scorer": "x"}}
        )


def test_health_metrics_and_ids(server: ServeProcess) -> None:
    health = httpx.get(f"{server.url}/health", headers={"X-Request-ID": "abc-1"})
    assert health.json()["status"] == "ok"
    assert health.headers["x-request-id"] == "abc-1"
    assert (
        len(
            httpx.get(f"{server.url}/health", headers={"X-Request-ID": 'bad "id"'}).headers[
                "x-request-id"
            ]
        )
        == 32
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


def test_no_other_origin_is_let_in(server: ServeProcess) -> None:
    answer = httpx.get(f"{server.url}/health", headers={"Origin": "http://elsewhere.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_the_page_comes_from_the_package_and_loads_nothing_from_elsewhere(
    server: ServeProcess,
) -> None:
    page = httpx.get(f"{server.url}/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for name in ("app.js", "style.css"):
        assert f"/page/{name}" in page.text
        assert "http" not in httpx.get(f"{server.url}/page/{name}").text.replace("http-equiv", "")


def test_health_answers_head_and_docs_say_where_the_schema_is(server: ServeProcess) -> None:
    head = httpx.head(f"{server.url}/health")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0
    for path in ("/docs", "/redoc"):
        told = httpx.get(f"{server.url}{path}")
        assert (told.status_code, "/openapi.json" in told.text) == (200, True)
    assert "/v1/score" in httpx.get(f"{server.url}/openapi.json").json()["paths"]


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


def test_a_server_takes_no_more_connections_than_it_may_open_files() -> None:
    process = ServeProcess(files=100)
    try:
        addresses = [process.url.removeprefix("http://").split(":")] * 60
        held = [socket.create_connection((host, int(port)), 10) for host, port in addresses]
        assert b"too many connections" in held[-1].recv(1000)
        for connection in held:
            connection.close()
    finally:
        assert process.stop() == 0
    assert [line for line in process.log if not line.startswith("{")] == [
        "dise: max_connections is 50, not 1024: this process may open only 100 files (ulimit -n)\n"
    ]


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_an_idle_server_in_order(how: signal.Signals, code: int) -> None:
    process = ServeProcess()
    httpx.get(f"{process.url}/health", headers={"X-Request-ID": "last"})
    assert process.stop(how) == code
    records = [json.loads(line) for line in process.log]
    assert [(record["id"], record["path"], record["status"]) for record in records] == [
        ("last", "/health", 200)
    ]


def test_a_key_is_asked_for_where_one_is_set() -> None:
    process = ServeProcess(environment={"DISE_API_KEY": "secret"})
    try:
        health = httpx.get(f"{process.url}/health")
        assert health.status_code == 200
        assert "countdown" not in health.text
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer \u00e9"}):
            refused = httpx.get(
                f"{process.url}/v1/models", headers={k: v.encode() for k, v in headers.items()}
            )  # type: ignore[misc]
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == "invalid_api_key"
        with openai.OpenAI(base_url=f"{process.url}/v1", api_key="secret") as client:
            assert client.models.list().data
    finally:
        process.stop()
