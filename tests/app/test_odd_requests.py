"""Requests as clients of all kinds send them: neutral values of fields that nothing here stands
behind, and odd ones. Each gets what docs/serving.md says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from dise_app.server.app import create_app
from dise_app.server.limits import Limits
from dise_core import AsyncLLM
from dise_core.testing import ToyPredictor

PROBLEM = "8,3,5 -> 10"
USER = {"role": "user", "content": PROBLEM}
DISE = {"block_length": 8}
BASES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [USER], "max_tokens": 8, "dise": DISE},
    "completions": {"prompt": PROBLEM, "max_tokens": 8, "dise": DISE},
    "responses": {"input": PROBLEM, "max_output_tokens": 8, "dise": DISE},
}
CHAT, TEXT, NEWER = BASES


class Application:
    """The server without a connection, in a loop of its own."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._loop = asyncio.new_event_loop()
        self._llm = llm
        self._app = create_app(llm, Limits(max_tokens_limit=64))

    def post(self, path: str, body: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.post(path, json=body)

        return self._loop.run_until_complete(ask())

    def close(self) -> None:
        self._loop.run_until_complete(self._llm.close(0))
        self._loop.close()


@pytest.fixture(scope="module")
def app() -> Iterator[Application]:
    application = Application(AsyncLLM("countdown"))
    yield application
    application.close()


@pytest.fixture(scope="module")
def plain(app: Application) -> dict[str, str]:
    """What each route answers to its base."""
    return {
        path: text_of(path, app.post(f"/v1/{path}", body).json()) for path, body in BASES.items()
    }


def text_of(path: str, answer: Any) -> str:
    if path == NEWER:
        [message] = answer["output"]
        return str(message["content"][0]["text"])
    [choice] = answer["choices"]
    return str(choice["text"] if path == TEXT else choice["message"]["content"])


NEUTRAL: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"response_format": {"type": "text"}}),
    (CHAT, {"tools": [], "tool_choice": "none"}),
    (CHAT, {"tools": None, "tool_choice": "auto", "parallel_tool_calls": True}),
    (CHAT, {"functions": [], "function_call": "none"}),
    (CHAT, {"service_tier": "auto"}),
    (CHAT, {"frequency_penalty": 0, "presence_penalty": 0.0}),
    (CHAT, {"repetition_penalty": 1, "length_penalty": 1.0, "min_p": 0}),
    (CHAT, {"top_k": -1}),
    (CHAT, {"top_k": 0, "top_p": 1, "temperature": 0}),
    (CHAT, {"top_k": 1}),
    (CHAT, {"logit_bias": {}}),
    (CHAT, {"logit_bias": None, "n": None, "stop": None, "stream": None, "seed": None}),
    (CHAT, {"max_tokens": None, "max_completion_tokens": 8}),
    (CHAT, {"temperature": None, "top_p": None, "logprobs": None, "top_logprobs": None}),
    (CHAT, {"modalities": ["text"], "audio": None, "prediction": None}),
    (CHAT, {"user": "me", "metadata": {"a": "b"}, "store": True, "safety_identifier": "x"}),
    (CHAT, {"prompt_cache_key": "x", "prompt_cache_retention": "24h", "request_id": "1"}),
    (CHAT, {"reasoning_effort": "none", "verbosity": "medium", "include_reasoning": True}),
    (CHAT, {"stream_options": None, "dise": {**DISE, "length": None}}),
    (CHAT, {"use_beam_search": False, "ignore_eos": False, "min_tokens": 0}),
    (CHAT, {"stop_token_ids": [], "bad_words": [], "skip_special_tokens": True}),
    (CHAT, {"add_generation_prompt": True, "continue_final_message": False, "echo": False}),
    (CHAT, {"chat_template": None, "chat_template_kwargs": {}, "documents": None}),
    (CHAT, {"guided_json": None, "guided_choice": None, "structured_outputs": None}),
    (CHAT, {"priority": 0, "cache_salt": "x", "kv_transfer_params": None, "vllm_xargs": {}}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": PROBLEM}]}]}),
    (CHAT, {"messages": [{**USER, "name": "a", "tool_calls": None, "refusal": None}]}),
    (CHAT, {"best_of": 1, "stop": []}),
    (CHAT, {"stop": ""}),
    (TEXT, {"suffix": None, "echo": False, "logprobs": None, "best_of": None}),
    (TEXT, {"suffix": "", "user": "me", "add_special_tokens": False}),
    (TEXT, {"prompt_logprobs": None, "truncate_prompt_tokens": None, "prompt_embeds": None}),
    (TEXT, {"response_format": {"type": "text"}, "stream_options": {"include_usage": True}}),
    (NEWER, {"tools": [], "tool_choice": "auto", "max_tool_calls": None}),
    (NEWER, {"text": {"format": {"type": "text"}, "verbosity": "medium"}}),
    (NEWER, {"store": True, "truncation": "disabled", "background": False, "include": []}),
    (NEWER, {"previous_response_id": None, "conversation": None, "prompt": None}),
    (NEWER, {"reasoning": {"effort": None, "summary": None}, "instructions": None}),
    (NEWER, {"include": ["reasoning.encrypted_content"], "service_tier": "default"}),
    (NEWER, {"input": [USER]}),
    (NEWER, {"best_of": 1, "seed": 5, "top_k": 0}),
    (NEWER, {"input": [{**USER, "type": "message", "id": "msg_1", "status": "completed"}]}),
]


@pytest.mark.parametrize(("path", "more"), NEUTRAL, ids=lambda given: str(given)[:60])
def test_a_neutral_field_changes_nothing(
    app: Application, plain: dict[str, str], path: str, more: dict[str, Any]
) -> None:
    answer = app.post(f"/v1/{path}", {**BASES[path], **more})
    assert answer.status_code == 200, answer.text
    assert text_of(path, answer.json()) == plain[path]


ORDER = "writes in no fixed order"
GRAMMAR = "tokens are written in any order, several at once"
ODD: list[tuple[str, dict[str, Any], str | None, str]] = [
    (CHAT, {"response_format": {"type": "json_object"}}, "response_format", GRAMMAR),
    (CHAT, {"guided_choice": ["1", "2"]}, "guided_choice", GRAMMAR),
    (CHAT, {"guided_regex": "[0-9]+"}, "guided_regex", GRAMMAR),
    (CHAT, {"structured_outputs": {"json": {}}}, "structured_outputs", GRAMMAR),
    (NEWER, {"text": {"format": {"type": "json_schema"}}}, "text.format.type", "Input should be"),
    (CHAT, {"tools": [{"type": "function"}]}, "tools", "calls no tools; leave it out, or give []"),
    (CHAT, {"tool_choice": "required"}, "tool_choice", "calls no tools"),
    (NEWER, {"tools": [{"type": "web_search"}]}, "tools", "calls no tools"),
    (CHAT, {"frequency_penalty": 0.5}, "frequency_penalty", ORDER),
    (CHAT, {"repetition_penalty": 1.1}, "repetition_penalty", ORDER),
    (CHAT, {"min_p": 0.1}, "min_p", "temperature, top_p and top_k"),
    (CHAT, {"ignore_eos": True}, "ignore_eos", "ends with the model's end token"),
    (CHAT, {"modalities": ["text", "audio"]}, "modalities", "reads and writes text"),
    (CHAT, {"service_tier": "priority"}, "service_tier", "one tier"),
    (CHAT, {"reasoning_effort": "high"}, "reasoning_effort", "no reasoning apart"),
    (NEWER, {"previous_response_id": "resp_1"}, "previous_response_id", "send all of it"),
    (NEWER, {"background": True}, "background", "while the client waits"),
    (NEWER, {"input": [{"type": "reasoning", "summary": []}]}, "input.0.type", "'message'"),
    (NEWER, {"input": []}, "input", "at least 1 item"),
    (CHAT, {"logit_bias": {"x": 1}}, "logit_bias", "a token id is a whole number"),
    (CHAT, {"logit_bias": {"3": 101}}, "logit_bias", "from -100 to 100, not 101"),
    (CHAT, {"logit_bias": {"99": 1}}, "logit_bias", "token id 99 at position 0 is outside"),
    (CHAT, {"allowed_token_ids": []}, "allowed_token_ids", "at least 1 item"),
    (CHAT, {"allowed_token_ids": [99]}, "allowed_token_ids", "token id 99"),
    (CHAT, {"top_k": -2}, "top_k", "greater than or equal to 0"),
    (CHAT, {"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
    (CHAT, {"max_tokens": 65}, "max_tokens", "above the server's 64"),
    (CHAT, {"n": 0}, "n", "greater than or equal to 1"),
    (CHAT, {"n": 2}, "temperature", "would all be the same"),
    (CHAT, {"seed": -1}, "seed", "greater than or equal to 0"),
    (CHAT, {"messages": None}, "messages", "Field required"),
    (CHAT, {"messages": []}, "messages", "at least 1 item"),
    (CHAT, {"messages": [{"content": "x"}]}, "messages.0.role", "Field required"),
    (CHAT, {"messages": [{**USER, "content": 3}]}, "messages.0.content", "valid string"),
    (
        CHAT,
        {"messages": [{**USER, "content": [{"type": "image_url", "image_url": "x"}]}]},
        "messages.0.content.0.type",
        "Input should be 'text'",
    ),
    (
        CHAT,
        {"messages": [{**USER, "tool_calls": [{"id": "x"}]}]},
        "messages.0.tool_calls",
        "no tools",
    ),
    (CHAT, {"prompt": "x"}, "prompt", "only POST /v1/completions takes a prompt"),
    (CHAT, {"colour": "red"}, "colour", "there is no setting 'colour'"),
    (CHAT, {"dise": {"scorers": "mc"}}, "dise.scorers", "Did you mean 'scorer'?"),
    (CHAT, {"max_token": 3}, "max_token", "Did you mean 'max_tokens'?"),
    (CHAT, {"dise": {"scorer": "disco"}}, "scorer", "unknown scorer 'disco'"),
    (TEXT, {"max_tokens": 0}, None, "with echo it scores the prompt"),
    (TEXT, {"echo": True, "stream": True}, None, "echo does not stream"),
    (TEXT, {"echo": True, "max_tokens": 0, "n": 2}, None, "one choice for each prompt"),
    (TEXT, {"suffix": "x"}, "suffix", "suffix is not supported"),
    (TEXT, {"logprobs": 21}, "logprobs", "less than or equal to 20"),
    (TEXT, {"prompt": 3}, "prompt", "valid string (given: 3)"),
    (TEXT, {"prompt": {"text": "a secret"}}, "prompt", "valid string"),
    (TEXT, {"add_special_tokens": True}, "add_special_tokens", "as they are given"),
]


@pytest.mark.parametrize(
    ("path", "more", "param", "message"), ODD, ids=lambda given: str(given)[:60]
)
def test_an_odd_field_is_a_400_that_names_it(
    app: Application, path: str, more: dict[str, Any], param: str | None, message: str
) -> None:
    answer = app.post(f"/v1/{path}", {**BASES[path], **more})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert message in error["message"]


def test_the_table_is_as_long_as_promised() -> None:
    assert len(NEUTRAL) + len(ODD) >= 60


@pytest.mark.parametrize("path", list(BASES))
def test_an_error_repeats_neither_the_body_nor_what_is_around_the_field(
    app: Application, path: str
) -> None:
    secret = "a secret"
    for more in ({"best_of": 0, "user": secret}, {"logprobs": [secret]}, {"x": secret}):
        body = {**BASES[path], **more, "metadata": {"a": secret}}
        assert secret not in app.post(f"/v1/{path}", body).text
    assert secret not in app.post(f"/v1/{path}", {"x": 1, "user": secret}).text
    assert secret not in app.post(f"/v1/{path}", [secret]).text


def test_an_empty_turn_is_read_as_one(app: Application) -> None:
    empty, said = {"role": "assistant", "content": ""}, {"refusal": None, "annotations": []}
    answers = [
        app.post(f"/v1/{CHAT}", {**BASES[CHAT], "messages": [USER, turn, USER]})
        for turn in (empty, {**empty, **said, "content": None})
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    one, other = (text_of(CHAT, answer.json()) for answer in answers)
    assert one == other


def test_a_chat_without_a_template_is_told_where_to_go() -> None:
    application = Application(AsyncLLM(ToyPredictor()))
    try:
        for path in (CHAT, NEWER):
            answer = application.post(f"/v1/{path}", BASES[path] | {"dise": {}})
            assert answer.status_code == 400
            assert answer.json()["error"]["message"] == (
                "model 'toy' has no chat template; give the prompt as one text, to POST "
                "/v1/completions"
            )
    finally:
        application.close()
