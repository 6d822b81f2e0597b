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
from dise_core.testing import ToyPredictor
from tests.app.serving import serving

PROBLEM = "8,3,5 -> 10"
USER = {"role": "user", "content": PROBLEM}
DISE = {"block_length": 8}
BASES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [USER], "max_tokens": 8, "dise": DISE},
    "completions": {"prompt": PROBLEM, "max_tokens": 8, "dise": DISE},
    "responses": {"input": PROBLEM, "max_output_tokens": 8, "dise": DISE},
    "score": {"prompt": PROBLEM, "response": "8-3+5=10"},
    "rank": {"prompt": PROBLEM, "candidates": ["8-3+5=10", "1"]},
}
CHAT, TEXT, NEWER, SCORE, RANK = BASES
WRITING = (CHAT, TEXT, NEWER)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        serving(AsyncLLM("countdown"), Limits(max_tokens_limit=64, grace=5)) as url,
        httpx.Client(base_url=f"{url}/v1/", timeout=60) as client,
    ):
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


def chosen(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


ORDER = "writes in no fixed order"
CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{"}}],
}
IN_CALL = "messages.1.tool_calls.0.function"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
HELD = "held to a JSON schema, a regular expression or a list of texts"
ODD: list[tuple[str, dict[str, Any], str | None, str]] = [
    (CHAT, {"response_format": {"type": "json_object"}}, "response_format", "cannot spell"),
    (CHAT, {"response_format": {"type": "json_schema"}}, "response_format", "go with type"),
    (CHAT, {"guided_choice": []}, "structured_outputs", "at least 1 item"),
    (CHAT, {"guided_regex": "("}, "structured_outputs", "cannot be used"),
    (CHAT, {"guided_grammar": "a"}, "guided_grammar", HELD),
    (CHAT, {"guided_regex": "1", "guided_json": {}}, "structured_outputs", "exactly one"),
    (
        TEXT,
        {"guided_regex": "1", "dise": {"constraint": "regex"}},
        "structured_outputs",
        "give one",
    ),
    (TEXT, {"structured_outputs": {"grammar": "a"}}, "structured_outputs.grammar", HELD),
    (TEXT, {"guided_regex": "1", "structured_outputs": 1}, "structured_outputs", "say the same"),
    (TEXT, {"structured_outputs": {}}, "structured_outputs", "exactly one of json, regex"),
    (TEXT, {"structured_outputs": {"regex": "1{99}"}}, "max_tokens", "the shortest needs"),
    (NEWER, {"structured_outputs": {"json": {"not": {}}}}, "structured_outputs", "/not = {}"),
    (NEWER, {"text": {"format": {"type": "x"}}}, "text.format.type", "Input should be"),
    (CHAT, {"tools": [{"type": "function"}]}, "tools.0.function", "Field required"),
    (CHAT, {"tools": [TOOL]}, "tool_choice", "set tool_choice to 'required'"),
    (CHAT, {"tools": [TOOL], "tool_choice": chosen("g")}, "tool_choice", "tools do not hold"),
    (CHAT, {"tool_choice": "required"}, "tool_choice", "tools do not hold"),
    (CHAT, {"tool_choice": "maybe"}, "tool_choice", "'none', 'auto' or 'required'"),
    (CHAT, {"tools": [TOOL], "tool_choice": "required"}, "tools", "cannot spell"),
    (
        CHAT,
        {"tools": [TOOL], "tool_choice": chosen("f"), "guided_regex": "1"},
        "tools",
        "tools and structured_outputs each say",
    ),
    (NEWER, {"tools": [{"type": "web_search"}]}, "tools", "only POST /v1/chat/completions"),
    (CHAT, {"frequency_penalty": 0.5}, "frequency_penalty", ORDER),
    (CHAT, {"min_p": 0.1}, "min_p", "temperature, top_p and top_k"),
    (CHAT, {"ignore_eos": True}, "ignore_eos", "ends with the model's end token"),
    (NEWER, {"previous_response_id": "resp_1"}, "previous_response_id", "send all of it"),
    (NEWER, {"input": [{"type": "reasoning", "summary": []}]}, "input.0.type", "'message'"),
    (CHAT, {"logit_bias": {"x": 1}}, "logit_bias.x", "should be a valid integer"),
    (CHAT, {"logit_bias": {"3": 101}}, "logit_bias.3", "less than or equal to 100"),
    (CHAT, {"logit_bias": {"99": 1}}, "logit_bias", "token id 99 at position 0 is outside"),
    (CHAT, {"allowed_token_ids": [99]}, "allowed_token_ids", "token id 99"),
    (CHAT, {"top_k": -2}, "top_k", "greater than or equal to 0"),
    (CHAT, {"max_tokens": 65}, "max_tokens", "above the server's 64"),
    (RANK, {"candidates": []}, "candidates", "at least 1 item"),
    (CHAT, {"n": 2}, "temperature", "would all be the same"),
    (CHAT, {"messages": None}, "messages", "Field required"),
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
        "messages.0.tool_calls.0.function",
        "Field required",
    ),
    (CHAT, {"messages": [USER, CALL]}, f"{IN_CALL}.arguments", "Invalid JSON"),
    (CHAT, {"prompt": "x"}, "prompt", "only POST /v1/completions takes a prompt"),
    (CHAT, {"colour": "red"}, "colour", "there is no setting 'colour'"),
    (CHAT, {"dise": {"early_exit": 0.9}}, "dise.early_exit", "take length='until-end', which"),
    (CHAT, {"dise": {"scorers": "mc"}}, "dise.scorers", "Did you mean 'scorer'?"),
    (CHAT, {"dise": {"scorer": "disco"}}, "scorer", "unknown scorer 'disco'"),
    (TEXT, {"max_tokens": 0}, None, "with echo it scores the prompt"),
    (TEXT, {"echo": True, "stream": True}, None, "echo does not stream"),
    (TEXT, {"echo": True, "max_tokens": 0, "n": 2}, None, "one choice for each prompt"),
    (
        TEXT,
        {"echo": True, "prompt": "<|mdm_mask|>1"},
        None,
        "mask token <|mdm_mask|> at position 0",
    ),
    (CHAT, {"suffix": "x"}, "suffix", "suffix is not supported"),
    (TEXT, {"suffix": "x", "echo": True}, None, "a suffix follows it; leave one of the two out"),
    (TEXT, {"suffix": "x", "prompt": "1"}, None, "vocabulary has no 'x'"),
    (TEXT, {"suffix": "1", "dise": {"length": "daedal"}}, "length", "'daedal' fills no gap"),
    (TEXT, {"prompt": {"text": "a secret"}}, "prompt", "valid string"),
    (TEXT, {"add_special_tokens": True}, "add_special_tokens", "as they are given"),
    (CHAT, {"n": 2, "best_of": 1}, None, "best_of=1 is less than n=2"),
    (CHAT, {"messages": [{"role": "system", "content": "x"}]}, "messages", "template refuses"),
    (CHAT, {"messages": [{"role": "user", "content": "h"}]}, None, "vocabulary has no 'h'"),
    (CHAT, {"stream": True, "dise": {"scorer": "x"}}, "scorer", "unknown scorer"),
    (TEXT, {"prompt": "1" * 510}, None, "longer than the model's limit of 512"),
    (TEXT, {"prompt": [[1], [2]], "stream": True}, "stream", "stream takes one prompt"),
    (TEXT, {"prompt": [9999]}, "token_ids", "token id 9999 at position 0 is outside"),
    (TEXT, {"prompt": [PROBLEM, ""]}, "prompt", "prompt 2: the prompt is empty"),
    (TEXT, {"prompt": [[1]] * 257}, None, "1 to 256 prompts, not 257"),
    (SCORE, {"response": ["1", ""]}, "response", "text 2: the response is empty"),
    (SCORE, {"scorer": "ar-perplexity"}, "judge", "needs an auto-regressive"),
    (SCORE, {"scorer": "mc", "scorer_settings": {"num_samples": 10**9}}, "num_samples", "1000000"),
]


@pytest.mark.parametrize(
    ("path", "more", "param", "message"), ODD, ids=lambda given: str(given)[:60]
)
def test_an_odd_field_is_a_400_that_names_it(
    client: httpx.Client, path: str, more: dict[str, Any], param: str | None, message: str
) -> None:
    answer = client.post(path, json={**BASES[path], **more})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert message in error["message"]


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


def test_a_chat_without_a_template_is_told_where_to_go() -> None:
    with serving(AsyncLLM(ToyPredictor())) as url:
        for path in (CHAT, NEWER):
            answer = httpx.post(f"{url}/v1/{path}", json=BASES[path] | {"dise": {}})
            assert answer.status_code == 400
            assert answer.json()["error"]["message"] == (
                "model 'toy' has no chat template; give the prompt as one text, to POST "
                "/v1/completions"
            )
