"""Answers that are held to a form, by the command and by the server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.embedded import CountdownPredictor
from dise_app.server.app import create_app
from dise_app.server.service import caller_of
from dise_core import AsyncLLM
from dise_core.constraints import turns
from dise_core.constraints.building import Stop, StoppedError
from dise_core.constraints.orders import Order
from tests.app.serving import Serve
from tests.ascii_model import AsciiPredictor, AsciiTokenizer
from tests.commands import Dise

FEW = ("--max-tokens", 16, "--block-length", 16)
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["x", "y z"]}, "b": {"$ref": "#/$defs/digit"}},
    "required": ["a", "b"],
    "$defs": {"digit": {"type": "integer", "minimum": 0, "maximum": 9}},
}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
OTHER = {"type": "function", "function": {"name": "g"}}
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 64}


@pytest.fixture(scope="module")
def client(served: Serve) -> Iterator[httpx.Client]:
    url = served(AsyncLLM(AsciiPredictor(has_chat_template=True)))
    with httpx.Client(base_url=f"{url}/v1/", timeout=120) as client:
        yield client


def test_the_command_holds_an_answer_to_a_choice_or_an_expression(dise: Dise) -> None:
    for option in (("--choice", "18,19"), ("--regex", "1[89]")):
        run = dise("generate", "83,18,75 -> 10", *FEW, *option, "--json")
        [output] = json.loads(run.out)["outputs"]
        assert (output["text"] in {"18", "19"}, output["finish_reason"]) == (True, "stop")


def test_the_command_reads_a_schema_from_a_file(dise: Dise, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "integer", "minimum": 10, "maximum": 99}')
    run = dise("generate", "83,18,75 -> 10", *FEW, "--schema", schema, "--json")
    assert 10 <= int(json.loads(run.out)["outputs"][0]["text"]) <= 99


@pytest.mark.parametrize("temperature", [0.0, 2.0])
@pytest.mark.parametrize("spacing", [True, False])
def test_every_spelling_of_a_schema_holds_the_answer_to_it(
    client: httpx.Client, temperature: float, spacing: bool
) -> None:
    held = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    vllms = {"json": json.dumps(SCHEMA), "disable_any_whitespace": spacing}
    for asked in (
        {"response_format": held},
        {"structured_outputs": vllms},
        {"guided_json": SCHEMA},
    ):
        more = {"temperature": temperature, "seed": 1, **asked}
        answer = client.post("chat/completions", json=ASKED | more).json()
        text = answer["choices"][0]["message"]["content"]
        jsonschema.validate(json.loads(text), SCHEMA)
        assert (": " in text) == (asked.get("structured_outputs") != vllms or not spacing)


def test_a_call_is_of_the_tool_that_is_likeliest_under_its_schema(client: httpx.Client) -> None:
    tools = {"tools": [TOOL, OTHER], "tool_choice": "required"}
    for name, schema in (("f", SCHEMA), ("g", {"const": {}})):
        favoured = {"logit_bias": {str(ord(name)): 100}}
        answer = client.post("chat/completions", json=ASKED | tools | favoured).json()
        [call] = answer["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == name
        jsonschema.validate(json.loads(call["function"]["arguments"]), schema)


def test_two_tools_that_define_a_name_in_two_ways_are_refused(client: httpx.Client) -> None:
    other = {**SCHEMA, "$defs": {"digit": {"type": "string"}}}
    tools = [TOOL, {"type": "function", "function": {"name": "g", "parameters": other}}]
    answer = client.post(
        "chat/completions", json=ASKED | {"tools": tools, "tool_choice": "required"}
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools")
    assert "define 'digit' in two ways" in answer.json()["error"]["message"]


def test_tools_stand_in_the_template_or_before_the_first_message() -> None:
    messages = [{"role": "user", "content": "?"}]
    tokenizer = AsciiTokenizer(has_chat_template=True)
    text = tokenizer.decode(tokenizer.encode_chat(messages, [OTHER]))
    assert text == f"<user>You can call these functions:\n{json.dumps([OTHER])}\n\n?<assistant>"
    fast = FastTokenizer.from_folder(CountdownPredictor.folder())
    fast._tokenizer.chat_template = (
        "{{ tools and tools[0].function.name }}"
        "{% for m in messages %}|{{ m.content }}{{ m.tool_calls and m.tool_calls[0].function }}"
        "{{ m.tool_call_id }}{% endfor %}"
    )
    function = {"name": "g", "arguments": {}}
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
    result = {"role": "tool", "content": "3", "tool_call_id": "c1"}
    text = fast.chat_text([*messages, called, result], tools=[OTHER])
    assert text == f"g|?|{function}|3c1"


def test_hostile_expressions_cost_their_own_requests_alone(client: httpx.Client) -> None:
    hostile = [{"guided_regex": rf"\w{{1,{size}}}"} for size in (900, 901)]
    schema: dict[str, object] = {"type": "string", "maxLength": 1000}
    for _ in range(3):
        schema = {"type": "array", "items": schema, "maxItems": 1000}
    held = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    hostile.append({"response_format": held})
    with ThreadPoolExecutor(len(hostile)) as threads:
        refused = [
            threads.submit(client.post, "chat/completions", json=ASKED | form) for form in hostile
        ]
        num_answered = 0
        while not all(future.done() for future in refused):
            assert client.post("completions", json={"prompt": "1", "max_tokens": 4}).is_success
            num_answered += 1
    answers = [future.result() for future in refused]
    errors = {answer.status_code: answer.json()["error"] for answer in answers}
    assert errors.keys() <= {400, 429}  # 429 where others have taken the processor's time
    if 400 in errors:
        assert errors[400]["param"] in {"structured_outputs", "response_format"}
        assert "make it simpler" in errors[400]["message"]
    assert num_answered > len(hostile)


def test_a_constraint_that_would_wait_too_long_is_told_to_come_again(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ASKED | {"guided_regex": "kept"}
    assert client.post("chat/completions", json=asked).is_success
    monkeypatch.setattr(turns, "MAX_AHEAD", -1)
    answer = client.post("chat/completions", json=ASKED | {"guided_regex": "busy"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    assert answer.json()["error"]["code"] == "overloaded"
    assert client.post("chat/completions", json=asked).is_success


def test_a_build_is_stopped_when_its_client_leaves(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def built(order: Order, stop: Stop) -> None:
        begun.set()
        while not stopped.wait(0.01):
            try:
                stop.check()
            except StoppedError:
                stopped.set()
                raise

    monkeypatch.setattr(Order, "built", built)
    with pytest.raises(httpx.ReadTimeout):
        client.post("chat/completions", json=ASKED | {"guided_regex": "left"}, timeout=2)
    assert begun.wait(60)
    assert stopped.wait(60)


def test_callers_are_told_apart_by_their_key_where_one_is_needed() -> None:
    """And by their address; the key is not kept itself."""
    seen = []
    app = create_app(AsyncLLM(AsciiPredictor()), api_key=["one", "two"])

    @app.get("/who")
    async def who(request: Request) -> None:
        seen.append(caller_of(request))

    with TestClient(app) as client:
        for key in ("one", "two", "one"):
            client.get("/who", headers={"Authorization": f"Bearer {key}"})
    assert seen[0] == seen[2] != seen[1]
    assert b"one" not in (seen[0][1] or b"")
