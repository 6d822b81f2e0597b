"""What gateways and frameworks send and read beside OpenAI's API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dise_app import create_app
from dise_app.server.limits import Limits
from dise_core import LLM, AsyncLLM, InputError
from tests.app.serving import Serve
from tests.ascii_model import AsciiPredictor

BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 4},
    "completions": {"prompt": "ab", "max_tokens": 4},
    "responses": {"input": "ab", "max_output_tokens": 4},
}


@pytest.fixture(scope="module")
def client(served: Serve) -> Iterator[httpx.Client]:
    limits = Limits(grace=5, allowed_origins=("*",))
    url = served(AsyncLLM(AsciiPredictor(has_chat_template=True)), limits)
    with httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.mark.parametrize("path", BODIES)
def test_headers_tell_the_score_of_the_first_choice(client: httpx.Client, path: str) -> None:
    headers = {"Origin": "https://app.example"}
    answer = client.post(f"/v1/{path}", json=BODIES[path], headers=headers)
    record = answer.json()
    [choice, *_] = record["output" if path == "responses" else "choices"]
    assert float(answer.headers["x-dise-score"]) == choice["dise"]["score"]["value"]
    assert "x-dise-probability" not in answer.headers
    assert "X-DiSE-Score" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("path", BODIES)
def test_rid_names_the_answer_and_the_request(client: httpx.Client, path: str) -> None:
    answer = client.post(f"/v1/{path}", json=BODIES[path] | {"rid": "r-1"})
    assert (answer.json()["id"], answer.headers["x-request-id"]) == ("r-1", "r-1")


def test_token_ids_are_told_where_vllm_has_them(client: httpx.Client) -> None:
    more = {"return_token_ids": True}
    text = client.post("/v1/completions", json=BODIES["completions"] | more).json()
    assert text["choices"][0]["prompt_token_ids"] == [97, 98]
    assert len(text["choices"][0]["token_ids"]) == 4
    chat = client.post("/v1/chat/completions", json=BODIES["chat/completions"] | more).json()
    assert len(chat["choices"][0]["token_ids"]) == 4
    assert bytes(chat["prompt_token_ids"]) == b"<user>ab<assistant>"


def test_neutral_fields_of_gateways_are_taken(client: httpx.Client) -> None:
    body = BODIES["completions"]
    neutral = {"separate_reasoning": False, "lora_path": None, "regex": None}
    neutral["nvext"] = {"annotations": [], "greed_sampling": False, "cache_salt": None}
    assert client.post("/v1/completions", json=body | neutral).status_code == 200


@pytest.fixture(scope="module")
def thinker(served: Serve) -> Iterator[httpx.Client]:
    """An embedded model whose template reads a variable."""
    llm = AsyncLLM("countdown")
    llm.predictor.tokenizer._tokenizer.chat_template = (  # type: ignore[attr-defined]
        "{{ messages[-1].content }} -> {{ 100 if enable_thinking else 7 }}"
    )
    with httpx.Client(base_url=served(llm, Limits(grace=5))) as client:
        yield client


THINKING = {"chat_template_kwargs": {"enable_thinking": True}}
MESSAGES = [{"role": "user", "content": "83,18,75"}]
TURNS: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 4}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("tokenize", {"messages": MESSAGES}, "count"),
        ("v1/chat/completions", TURNS, "prompt_tokens"),
        ("v1/chat/completions", TURNS | STREAM, "prompt_tokens"),
        ("v1/responses", {"input": "83,18,75", "max_output_tokens": 4}, "input_tokens"),
        ("v1/responses", {"input": "83,18,75", "stream": True}, "input_tokens"),
    ],
)
def test_a_chat_template_is_given_its_variables(
    thinker: httpx.Client, path: str, body: dict[str, Any], field: str
) -> None:
    none: dict[str, Any] = {"chat_template_kwargs": {}}
    for kwargs, target in (({}, "7"), (THINKING, "100"), (none, "7")):
        read = thinker.post("/tokenize", json={"prompt": f"83,18,75 -> {target}"}).json()
        answer = thinker.post(f"/{path}", json=body | kwargs)
        assert answer.status_code == 200, answer.text
        assert re.findall(rf'"{field}": ?(\d+)', answer.text) == [str(read["count"])]


@pytest.mark.parametrize("stream", [False, True])
def test_a_refused_variable_of_a_chat_template_is_named(
    thinker: httpx.Client, client: httpx.Client, stream: bool
) -> None:
    body = TURNS | {"stream": stream}
    more = {"chat_template_kwargs": {"chat_template": "{{ 7 * 7 }}"}}
    for asked, sent, problem in (
        (thinker, more, "may not hold"),
        (client, THINKING, "this model's chat template takes no chat_template_kwargs"),
    ):
        refusal = asked.post("/v1/chat/completions", json=body | sent)
        assert (refusal.status_code, problem in refusal.text) == (400, True), refusal.text
        assert refusal.json()["error"]["param"] == "chat_template_kwargs"
    plain = {"prompt": "ab"} | THINKING
    assert "are for messages" in thinker.post("/tokenize", json=plain).text
    assert thinker.post("/v1/completions", json=plain).status_code == 400


def test_a_server_is_made_of_an_async_model_alone() -> None:
    problem = r"A server answers with an AsyncLLM, and LLM\('ascii'\) is none: make AsyncLLM\("
    with pytest.raises(InputError, match=problem):
        create_app(LLM(AsciiPredictor()))  # type: ignore[arg-type]


def test_a_mounted_server_has_its_own_open_paths() -> None:
    app = FastAPI()
    app.mount("/dise", create_app(AsyncLLM(AsciiPredictor()), api_key="key"))
    inside = TestClient(app)
    for path in ("/dise/", "/dise/health", "/dise/ping", "/dise/page/app.js"):
        assert inside.get(path).status_code == 200, path
    assert inside.get("/dise/load").json() == {"server_load": 0}
    assert inside.post("/dise/ping").content == b""
    assert inside.get("/dise/v1/models").status_code == 401
