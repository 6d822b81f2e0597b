"""Clients that send anything at all, in any way, to a server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_app.server.app import create_app
from dise_app.server.guards.hosts import Hosts
from dise_app.server.limits import Limits
from dise_app.server.routes.tokens import DetokenizeRequest, TokenizeRequest
from dise_app.server.schemas.neutral import HINTS, NEUTRAL
from dise_app.server.schemas.requests import ChatRequest, CompletionRequest, Extensions, RankRequest
from dise_app.server.schemas.responses import ResponseRequest
from dise_app.server.service import Service
from dise_core import AsyncLLM
from dise_core.testing import ToyPredictor
from dise_decide.routes import DecisionRequest
from tests.app.serving import Serve, ServeProcess, ServerThread
from tests.hostile.bounds import bounded, cases

LIMITS = Limits(
    body_timeout=0.5,
    idle_timeout=1,
    grace=5,
    max_body_bytes=100_000,
    max_bytes_in_flight=150_000,
    max_connections=20,
)
KEY = "schl\u00fcssel \u2603"
AUTHORIZATION = f"Authorization: Bearer {KEY}"
BODY = b'{"prompt": [1, 2], "response": [3, 4, 5]}'


@pytest.fixture(scope="module")
def url(served: Serve) -> str:
    return served(AsyncLLM(ToyPredictor()), LIMITS, KEY, Hosts("127.0.0.1"))


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(10)
    return connection


def head(*lines: str, first: str = "POST /v1/score HTTP/1.1") -> bytes:
    return "\r\n".join([first, *lines, "", ""]).encode()


def scoring(*lines: str) -> bytes:
    return head("Host: localhost", AUTHORIZATION, "Content-Type: application/json", *lines)


GOOD = scoring(f"Content-Length: {len(BODY)}") + BODY


def rest(connection: socket.socket) -> bytes:
    """Return all that the server sends until it closes the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(2**16):
            received += piece
    return received


def answered(url: str, request: bytes) -> bytes:
    """Return the answer to a request after which the client waits until the server closes."""
    with closing(connect(url)) as connection:
        connection.sendall(request)
        return rest(connection)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (GOOD, b"HTTP/1.1 200"),
        (scoring("Content-Length: 100") + BODY, b"HTTP/1.1 408"),
        (scoring("Transfer-Encoding: chunked") + b"5\r\nabcde\r\n", b"HTTP/1.1 408"),
        (head("Host: localhost", "Content-Length: 9", first="GET / HTTP/1.1"), b"HTTP/1.1 200"),
        (GOOD + b"POST /v1/sc", b"HTTP/1.1 200"),
        (head("Host: localhost", "Content-Length: 100"), b"HTTP/1.1 401"),
    ],
)
def test_a_request_that_stops_midway_does_not_hold_its_connection(
    url: str, request_bytes: bytes, status: bytes
) -> None:
    with bounded():
        answer = answered(url, request_bytes)
    assert answer.startswith(status)


def test_a_piece_now_and_then_does_not_prolong_the_time_of_a_body(url: str) -> None:
    with bounded(), closing(connect(url)) as connection:
        connection.sendall(scoring("Content-Length: 90000"))
        with suppress(ConnectionError):
            for _ in range(1_000):
                connection.sendall(b"a")
                time.sleep(0.05)
            pytest.fail("the connection is still open")


def test_requests_on_more_connections_than_allowed_are_refused_and_later_taken(url: str) -> None:
    held = [connect(url) for _ in range(LIMITS.max_connections)]
    assert {answered(url, GOOD)[:12] for _ in range(3)} == {b"HTTP/1.1 503"}
    for connection in held:
        connection.close()
    while (answer := answered(url, GOOD)).startswith(b"HTTP/1.1 503"):
        time.sleep(0.05)
    assert answer.startswith(b"HTTP/1.1 200")


def test_bodies_hold_no_more_than_their_budget_together(url: str) -> None:
    part = scoring("Content-Length: 90000") + b" " * 80_000
    held = [connect(url) for _ in range(4)]
    for connection in held:
        connection.sendall(part)
    statuses = sorted(rest(connection)[9:12] for connection in held)
    assert statuses == [b"408", b"429", b"429", b"429"]
    for connection in held:
        connection.close()
    assert answered(url, GOOD).startswith(b"HTTP/1.1 200")


def test_a_client_that_leaves_midway_through_its_body_asked_for_nothing(url: str) -> None:
    with closing(connect(url)) as connection:
        connection.sendall(scoring("Content-Length: 900") + BODY)
    headers = {"Authorization": f"Bearer {KEY}".encode()}
    ended = time.monotonic() + 10
    while 'status="499"' not in httpx.get(f"{url}/metrics", headers=headers).text:  # type: ignore[arg-type]
        assert time.monotonic() < ended
        time.sleep(0.05)


def test_two_lengths_of_a_body_are_refused(url: str) -> None:
    smuggled = scoring(f"Content-Length: {len(BODY)}", "Transfer-Encoding: chunked")
    answer = answered(url, smuggled + b"0\r\n\r\n" + GOOD)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"exclude each other" in answer
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("\u00e9vil", 403),
    ],
)
def test_only_the_names_of_this_machine_are_answered(url: str, host: str, status: int) -> None:
    for path in ("/", "/health"):
        answer = httpx.get(f"{url}{path}", headers={"Host": host.encode()})  # type: ignore[dict-item]
        assert answer.status_code == status, answer.text
        assert status == 200 or answer.json()["error"]["code"] == "host_not_allowed"


def test_which_hosts_are_allowed_follows_the_address_and_the_option() -> None:
    everywhere = Hosts("0.0.0.0", ["dise.example"])
    assert all(map(everywhere.allows, ["10.0.0.3:80", "[fe80::1]", "dise.example", "localhost"]))
    assert not any(map(everywhere.allows, ["other.example", "", "10.0.0.3.other.example"]))
    assert everywhere.allows(socket.gethostname())
    assert Hosts("127.0.0.1", ["gpu7"]).allows("gpu7:8000")
    assert Hosts("127.0.0.1", ["*"]).allows("anything")
    assert not Hosts("::1").allows("10.0.0.3")


LOOP = asyncio.new_event_loop()
LLM = AsyncLLM("countdown")
APP = create_app(LLM, Limits(max_tokens_limit=16, timeout=4.0))


def asked(path: str, content: bytes) -> httpx.Response:
    """Return the answer of the application itself, without a connection."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=APP, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            headers = {"Content-Type": "application/json"}
            return await client.post(path, content=content, headers=headers)

    return LOOP.run_until_complete(ask())


@pytest.fixture(scope="session", autouse=True)
def application() -> Iterator[None]:
    yield
    LOOP.run_until_complete(LLM.close(0))
    LOOP.close()


SURROGATE = "\ud800"
ROUTES = {
    "/v1/completions": {"prompt": "8,3,5 -> 10", "max_tokens": 8, "dise": {"block_length": 8}},
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "8,3,5 -> 10"}],
        "max_tokens": 8,
        "stop": ["x"],
    },
    "/v1/score": {"prompt": "8,3,5 -> 10", "response": "5+8-3=10"},
    "/v1/rank": {"prompt": "8,3,5 -> 10", "candidates": ["5+8-3=10", [1, 2]]},
    "/v1/decisions": {
        "input": "8,3,5 -> 10",
        "questions": [
            {"type": "choice", "instructions": "8", "choices": [{"value": "+"}, {"value": "-"}]},
            {"type": "score", "name": "a", "instructions": "", "levels": [{"label": "1"}, "2"]},
        ],
        "dise": {"layout": "cloze"},
    },
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "8,3,5 -> 10"}]}],
        "max_output_tokens": 8,
    },
    "/tokenize": {"messages": [{"role": "user", "content": "8,3,5 -> 10"}]},
    "/detokenize": {"tokens": [1, 2]},
}


@pytest.mark.parametrize("path", list(ROUTES))
def test_lone_surrogates_are_refused_wherever_they_stand(path: str) -> None:
    for change in (
        {"prompt": SURROGATE},
        {SURROGATE: 1},
        {"messages": [{"role": SURROGATE, "content": SURROGATE}]},
    ):
        answer = asked(path, json.dumps({**ROUTES[path], **change}).encode())
        assert answer.status_code == 400, answer.text
        assert "surrogate pair" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 1_000 + b"1" + b"}" * 1_000,
        b'{"prompt": NaN}',
        b'{"seed": ' + b"9" * 100_000 + b"}",
        b'"' + b"a" * 1_000_000,
        b"",
    ],
)
def test_what_is_no_request_is_refused(content: bytes) -> None:
    with bounded():
        answer = asked("/v1/completions", content)
    assert answer.status_code == 400
    assert len(answer.content) < 1_000


@pytest.mark.parametrize("item", [b"null,", b'"a",1,', b"[null],", b"{},", b"0.5,"])
def test_a_list_of_a_million_wrong_items_is_one_problem(item: bytes) -> None:
    items = (item * (2_000_000 // len(item)))[:-1]
    completions = ("v1/completions", "prompt"), ("v1/completions", "stop")
    chat = ("v1/chat/completions", "messages"), ("v1/responses", "input")
    others = ("v1/score", "response"), ("v1/decisions", "questions"), ("detokenize", "tokens")
    for path, field in (*completions, *chat, *others):
        with bounded(gigabytes=0.5):
            answer = asked(f"/{path}", f'{{"{field}": ['.encode() + items + b"]}")
        assert answer.status_code == 400
        assert len(answer.content) < 1_000


PART = '{"input": [{"role": "user", "content": [{"type": "input_text", "text": "a", "logprobs": '
MANY = "[" + ",".join(["null"] * 350_000) + "]"
OTHERS = "{" + ",".join(f'"{number}": "a"' for number in range(120_000)) + "}"
BLANKS = [f"{number:016b}".translate({48: " ", 49: "\t"}) for number in range(60_000)]
MOST, FEW = [*map(str, range(255))], BLANKS[:255]


def choices(own: list[str], count: int) -> str:
    question = {"type": "choice", "instructions": "1", "choices": own}
    return json.dumps({"input": "1", "questions": [question] * count})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("v1/responses", f"{PART}{MANY}}}]}}]}}"),
        ("v1/completions", f'{{"prompt": "a", "dise": {{"forbidden_token_ids": {MANY}}}}}'),
        ("v1/completions", f'{{"prompt": "a", "logit_bias": {OTHERS}}}'),
        ("v1/completions", f'{{"prompt": "a", "dise": {{"scorer_settings": {OTHERS}}}}}'),
        ("v1/completions", OTHERS),
        ("v1/score", OTHERS),
        ("v1/decisions", choices(BLANKS, 1)),
        ("v1/decisions", choices(FEW, 64)),
        ("v1/decisions", choices(MOST, 400)),
    ],
)
def test_a_million_problems_inside_are_one(path: str, body: str) -> None:
    with bounded(0.3):
        answer = asked(f"/{path}", body.encode())
    assert answer.status_code == 400
    assert len(answer.content) < 1_000


texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["", SURROGATE, "\x00", "a" * 3_000, "\u202e", "<mask>", "last-10", "dise"]),
    st.text(st.characters(categories=("Cs", "Cc", "Co", "Nd")), max_size=4),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 40),
    st.sampled_from([2**31, 2**64, -(2**63), 10**30]),
    st.floats(),
    texts,
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
BODIES = (
    CompletionRequest, ChatRequest, RankRequest, DecisionRequest, ResponseRequest,
    TokenizeRequest, DetokenizeRequest,
)  # fmt: skip
FIELDS = [*(name for body in BODIES for name in body.model_fields), *NEUTRAL, *HINTS]


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """Good requests but for a few fields, sometimes torn."""
    path = draw(st.sampled_from(sorted(ROUTES)))
    names = st.sampled_from(FIELDS) | texts
    body: dict[str, Any] = {**ROUTES[path], **draw(st.dictionaries(names, values, max_size=3))}
    if "completions" in path and draw(st.booleans()):
        options = st.sampled_from(sorted(Extensions.model_fields))
        body["dise"] = draw(st.dictionaries(options, values, max_size=3))
    content = json.dumps(body).encode()
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(content)))
        content = content[:place] + draw(st.binary(max_size=4)) + content[place:]
    return path, content


@cases(1 / 9)
@given(requests())
def test_no_request_is_the_servers_fault(request: tuple[str, bytes]) -> None:
    with bounded():
        answer = asked(*request)
    assert answer.status_code in (200, 400, 404, 429, 503, 504), answer.text


def test_two_interrupts_end_the_process_at_once_and_without_a_traceback() -> None:
    process = ServeProcess("--grace", "100")
    body = {"prompt": "1,2 -> 3", "response": "1+2=3", "scorer": "mc"}
    slow = json.dumps({**body, "scorer_settings": {"num_samples": 20_000}}).encode()
    with closing(connect(process.url)) as connection:
        lines = ("Host: localhost", "Content-Type: application/json")
        connection.sendall(head(*lines, f"Content-Length: {len(slow)}") + slow)
        while not httpx.get(f"{process.url}/health").json()["running"]:
            time.sleep(0.05)
        os.kill(process.process.pid, signal.SIGINT)
        time.sleep(0.5)
        assert process.process.poll() is None
        code = process.stop(signal.SIGINT)
    assert code == 1, "a request was cut off"
    assert "Traceback" not in "".join(process.log)


def test_held_connections_do_not_keep_a_drained_server_from_ending_with_0() -> None:
    running = ServerThread(
        Service(Limits(grace=20, body_timeout=1000), AsyncLLM(ToyPredictor())), api_key=KEY
    )
    beginnings = [b"", b"POST /v1/sc", scoring("Content-Length: 900") + BODY, GOOD]
    held = [connect(running.url) for _ in beginnings]
    for connection, beginning in zip(held, beginnings, strict=True):
        connection.sendall(beginning)
    assert held[-1].recv(12) == b"HTTP/1.1 200"
    running.server.handle_exit(signal.SIGTERM, None)
    running.thread.join(60)
    assert not running.thread.is_alive()
    assert running.server.exit_code == 0
    for connection in held:
        connection.close()
