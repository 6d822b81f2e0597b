"""Requests as clients of all kinds send them: neutral values of fields that nothing here stands
behind, and odd ones. Each gets what docs/serving.md says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from dise_app.server.limits import Limits
from dise_core import AsyncLLM
from tests.app.serving import Serve
from tests.refusals.http import BASES, CHAT, DISE, NEWER, PROBLEM, TEXT, USER, WRITING


@pytest.fixture(scope="module")
def client(served: Serve) -> Iterator[httpx.Client]:
    url = served(AsyncLLM("countdown"), Limits(max_tokens_limit=64, grace=5))
    with httpx.Client(base_url=f"{url}/v1/", timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def plain(client: httpx.Client) -> dict[str, str]:
    """What each route answers to its base."""
    return {path: text_of(path, client.post(path, json=BASES[path]).json()) for path in WRITING}


def text_of(path: str, answer: Any) -> str:
    if path == NEWER:
        [message] = answer["output"]
        return str(message["content"][0]["text"])
    [choice] = answer["choices"]
    return str(choice["text"] if path == TEXT else choice["message"]["content"])


NEUTRAL: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"response_format": {"type": "text"}}),
    (CHAT, {"tools": None, "tool_choice": "auto", "parallel_tool_calls": True}),
    (CHAT, {"functions": [], "function_call": "none"}),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"}),
    (CHAT, {"frequency_penalty": 0, "presence_penalty": 0.0}),
    (CHAT, {"repetition_penalty": 1, "length_penalty": 1.0, "min_p": 0}),
    (CHAT, {"top_k": -1, "top_p": 1, "temperature": 0}),
    (CHAT, {"logit_bias": None, "n": None, "stop": None, "stream": None, "seed": None}),
    (CHAT, {"max_tokens": None, "max_completion_tokens": 8}),
    (CHAT, {"modalities": ["text"], "audio": None, "prediction": None}),
    (CHAT, {"user": "me", "metadata": {"a": "b"}, "store": True, "safety_identifier": "x"}),
    (CHAT, {"reasoning_effort": "none", "verbosity": "medium", "include_reasoning": True}),
    (CHAT, {"stream_options": None, "dise": {**DISE, "length": None}}),
    (CHAT, {"stop_token_ids": [], "bad_words": [], "skip_special_tokens": True}),
    (CHAT, {"priority": 0, "prompt_cache_key": "x", "kv_transfer_params": None, "vllm_xargs": {}}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": PROBLEM}]}]}),
    (CHAT, {"messages": [{**USER, "name": "a", "tool_calls": None, "refusal": None}]}),
    (CHAT, {"best_of": 1, "stop": []}),
    (CHAT, {"stop": ""}),
    (TEXT, {"suffix": "", "user": "me", "add_special_tokens": False}),
    (TEXT, {"response_format": {"type": "text"}, "stream_options": {"include_usage": True}}),
    (NEWER, {"tools": [], "tool_choice": "auto", "max_tool_calls": None}),
    (NEWER, {"text": {"format": {"type": "text"}, "verbosity": "medium"}}),
    (NEWER, {"store": True, "truncation": "disabled", "background": False, "include": []}),
    (NEWER, {"previous_response_id": None, "conversation": None, "prompt": None}),
    (NEWER, {"include": ["reasoning.encrypted_content"], "service_tier": "default"}),
    (NEWER, {"input": [{**USER, "type": "message", "id": "msg_1", "status": "completed"}]}),
]


@pytest.mark.parametrize(("path", "more"), NEUTRAL, ids=lambda given: str(given)[:60])
def test_a_neutral_field_changes_nothing(
    client: httpx.Client, plain: dict[str, str], path: str, more: dict[str, Any]
) -> None:
    answer = client.post(path, json={**BASES[path], **more})
    assert answer.status_code == 200, answer.text
    assert text_of(path, answer.json()) == plain[path]


@pytest.mark.parametrize("path", WRITING)
def test_an_error_repeats_neither_the_body_nor_what_is_around_the_field(
    client: httpx.Client, path: str
) -> None:
    secret = "a secret"
    for more in ({"best_of": 0, "user": secret}, {"logprobs": [secret]}, {"x": secret}):
        body = {**BASES[path], **more, "metadata": {"a": secret}}
        assert secret not in client.post(path, json=body).text
    assert secret not in client.post(path, json={"x": 1, "user": secret}).text
    assert secret not in client.post(path, json=[secret]).text


def test_an_empty_turn_is_read_as_one(client: httpx.Client) -> None:
    empty, said = {"role": "assistant", "content": ""}, {"refusal": None, "annotations": []}
    answers = [
        client.post(CHAT, json={**BASES[CHAT], "messages": [USER, turn, USER]})
        for turn in (empty, {**empty, **said, "content": None})
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    one, other = (text_of(CHAT, answer.json()) for answer in answers)
    assert one == other
