"""What gateways and frameworks send and read beside OpenAI's API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dise_app import create_app
from dise_app.server.limits import Limits
from dise_core import AsyncLLM
from tests.app.serving import serving
from tests.ascii_model import AsciiPredictor

BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 4},
    "completions": {"prompt": "ab", "max_tokens": 4},
    "responses": {"input": "ab", "max_output_tokens": 4},
}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    limits = Limits(grace=5, allowed_origins=("*",))
    model = AsyncLLM(AsciiPredictor(has_chat_template=True))
    with serving(model, limits) as url, httpx.Client(base_url=url, timeout=60) as client:
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
    refusal = client.post(f"/v1/{path}", json=BODIES[path] | {"rid": "a b"})
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "rid")


def test_token_ids_are_told_where_vllm_has_them(client: httpx.Client) -> None:
    more = {"return_token_ids": True}
    text = client.post("/v1/completions", json=BODIES["completions"] | more).json()
    assert text["choices"][0]["prompt_token_ids"] == [97, 98]
    assert len(text["choices"][0]["token_ids"]) == 4
    chat = client.post("/v1/chat/completions", json=BODIES["chat/completions"] | more).json()
    assert len(chat["choices"][0]["token_ids"]) == 4
    assert bytes(chat["prompt_token_ids"]) == b"<user>ab<assistant>"


def test_neutral_fields_of_gateways_are_taken_and_others_named(client: httpx.Client) -> None:
    body = BODIES["completions"]
    neutral = {"separate_reasoning": False, "lora_path": None, "regex": None}
    neutral["nvext"] = {"annotations": [], "greed_sampling": False, "cache_salt": None}
    assert client.post("/v1/completions", json=body | neutral).status_code == 200
    refusal = client.post("/v1/completions", json=body | {"nvext": {"greed_sampling": True}})
    assert refusal.status_code == 400
    assert refusal.json()["error"]["param"] == "nvext.greed_sampling"


def test_a_mounted_server_has_its_own_open_paths() -> None:
    app = FastAPI()
    app.mount("/dise", create_app(AsyncLLM(AsciiPredictor()), api_key="key"))
    inside = TestClient(app)
    for path in ("/dise/", "/dise/health", "/dise/ping", "/dise/page/app.js"):
        assert inside.get(path).status_code == 200, path
    assert inside.get("/dise/load").json() == {"server_load": 0}
    assert inside.post("/dise/ping").content == b""
    assert inside.get("/dise/v1/models").status_code == 401
