"""What goes wrong with one request, and that the others never notice."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from dise_app.server.limits import Limits
from dise_core import (
    LLM,
    AsyncLLM,
    Plan,
    Read,
    Score,
    Scorer,
    Selector,
    TokenLogProbs,
    TokenSequence,
)
from dise_core.testing import ToyPredictor
from tests.app.serving import ServeProcess, events_of, serving
from tests.guests import with_guests

BODY = {"prompt": [1, 2], "response": [3, 4, 5]}
PROBLEM = "83,18,75 -> 10"


class Endless(Scorer):
    """Asks for ever."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        while True:
            yield [Read(sequence.ids, np.array([0]), TokenLogProbs(sequence.ids[:1]))]


class Raising(Scorer):
    """Fails on its own."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        yield [Read(sequence.ids, np.array([0]), TokenLogProbs(sequence.ids[:1]))]
        raise ZeroDivisionError("as planned")


class Poisoned(ToyPredictor):
    """Answers NaN for any text with the token 9 in front, and slowly."""

    def logits(self, ids: np.ndarray) -> np.ndarray:
        time.sleep(0.002)
        return super().logits(ids) * (np.nan if ids[0] == 9 else 1)


BROKEN: dict[str, type[Scorer]] = {"endless": Endless, "raising": Raising}


@pytest.fixture
def server() -> Iterator[tuple[str, AsyncLLM]]:
    llm = AsyncLLM(Poisoned(), catalog=with_guests(scorers=BROKEN), max_num_seqs=4, max_waiting=8)
    with serving(llm, Limits(max_body_bytes=10_000, timeout=1.0)) as url:
        yield url, llm


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def good(url: str) -> float:
    answer = httpx.post(f"{url}/v1/score", json=BODY, timeout=20)
    assert answer.status_code == 200, answer.text
    return float(answer.json()["data"][0]["score"]["value"])


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"scorer": "raising"}, 500, "ZeroDivisionError: as planned"),
        ({"scorer": "endless"}, 504, "took longer than the server allows"),
        ({"prompt": [9]}, 500, "logits at position 1 hold NaN or infinity"),
        ({"prompt": [1] * 50}, 400, "longer than the model's limit of 40"),
    ],
)
def test_a_fault_fails_its_own_request_alone(
    server: tuple[str, AsyncLLM], body: Mapping[str, Any], status: int, message: str
) -> None:
    url, llm = server
    [alone] = LLM(ToyPredictor()).score([BODY["prompt"]], [BODY["response"]])
    with ThreadPoolExecutor(4) as pool:
        bad = pool.submit(httpx.post, f"{url}/v1/score", json={**BODY, **body}, timeout=20)
        values = list(pool.map(good, [url] * 12))
    assert (bad.result().status_code, message in bad.result().json()["error"]["message"]) == (
        status,
        True,
    ), bad.result().text
    assert values == pytest.approx([alone.outputs[0].score.value] * 12)
    eventually(lambda: llm.engine.num_running == 0)


def test_a_stream_that_fails_midway_says_so_and_ends(server: tuple[str, AsyncLLM]) -> None:
    url, _ = server
    body = {"prompt": [1, 2], "max_tokens": 4, "stream": True, "dise": {"scorer": "raising"}}
    stream = httpx.post(f"{url}/v1/completions", json=body, timeout=20).text
    message = events_of(stream)[-1]["error"]["message"]
    assert message == "scorer 'raising' of plugin 'guest': ZeroDivisionError: as planned"
    assert stream.endswith("data: [DONE]\n\n")


def sent(url: str, stream: bool) -> socket.socket:
    """Return a connection on which an endless request has been sent."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(
        {"prompt": [1, 2], "max_tokens": 4, "stream": stream, "dise": {"scorer": "endless"}}
    )
    connection = socket.create_connection((host, int(port)))
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}"
    connection.sendall(f"{head}\r\n\r\n{body}".encode())
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_place(stream: bool) -> None:
    llm = AsyncLLM(Poisoned(), catalog=with_guests(scorers=BROKEN), max_num_seqs=1)
    with serving(llm) as url:
        with sent(url, stream):
            eventually(lambda: llm.engine.num_running == 1)
            with sent(url, stream):
                eventually(lambda: llm.engine.num_waiting == 1)
            eventually(lambda: llm.engine.num_waiting == 0)
            assert llm.engine.num_running == 1
        eventually(lambda: llm.engine.num_running == 0)
        assert good(url)


def test_a_full_queue_answers_429_and_later_goes_on(server: tuple[str, AsyncLLM]) -> None:
    url, llm = server
    body = {**BODY, "scorer": "endless"}
    with ThreadPoolExecutor(20) as pool:
        waiting = [
            pool.submit(httpx.post, f"{url}/v1/score", json=body, timeout=20) for _ in range(16)
        ]
        statuses = [each.result().status_code for each in waiting]
    assert set(statuses) == {429, 504}
    refused = next(each.result() for each in waiting if each.result().status_code == 429)
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["code"] == "overloaded"
    eventually(lambda: llm.engine.num_running == 0)
    assert good(url)


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("score", {"prompt": [1, 2], "response": [[3, 4]] * 9}),
        ("completions", {"prompt": [[1, 2]] * 9, "max_tokens": 2}),
        ("completions", {"prompt": [[1, 2]] * 5, "max_tokens": 2, "echo": True}),
    ],
)
def test_more_texts_than_may_ever_wait_are_the_clients_fault(
    server: tuple[str, AsyncLLM], route: str, body: dict[str, Any]
) -> None:
    url, llm = server
    refused = httpx.post(f"{url}/v1/{route}", json=body, timeout=20)
    told = refused.json()["error"]["message"]
    assert (refused.status_code, "more than the 8 that may wait" in told) == (400, True), told
    whole = {**BODY, "response": [[3, 4]] * 8}
    assert httpx.post(f"{url}/v1/score", json=whole, timeout=20).status_code == 200
    eventually(lambda: llm.engine.num_running == 0)


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_that_is_too_large_is_refused_while_it_arrives(
    server: tuple[str, AsyncLLM], declared: bool
) -> None:
    url, _ = server
    content = b'{"prompt": "' + b"a" * 20_000
    pieces = content if declared else iter([content[:5_000], content[5_000:]])
    answer = httpx.post(
        f"{url}/v1/score", content=pieces, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"


def test_sigterm_under_load_answers_or_fails_every_request() -> None:
    """30 requests are sent, a third of them endless in practice; SIGTERM comes while they run; each
    gets an HTTP answer.
    """
    process = ServeProcess("--grace", "2", "--max-num-seqs", "4")
    quick = {"prompt": PROBLEM, "response": "1+2=3"}
    slow = {**quick, "scorer": "mc", "scorer_settings": {"num_samples": 1_000_000}}
    statuses: list[int] = []

    def ask(number: int) -> None:
        answer = httpx.post(
            f"{process.url}/v1/score", json=slow if number % 3 == 0 else quick, timeout=60
        )
        statuses.append(answer.status_code)
        assert answer.status_code == 200 or answer.json()["error"]["code"] == "shutting_down"

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()

    def num_received() -> int:
        health = httpx.get(f"{process.url}/health", timeout=30).json()
        return int(health["running"] + health["waiting"]) + len(statuses)

    eventually(lambda: num_received() == 30)
    started = time.monotonic()
    assert process.stop() == 1
    for thread in threads:
        thread.join(30)
    assert time.monotonic() - started < 20
    assert len(statuses) == 30
    assert set(statuses) <= {200, 503}
    assert 503 in statuses
    logged = [json.loads(line)["status"] for line in process.log if '"path": "/v1/score"' in line]
    assert sorted(logged) == sorted(statuses)


def test_sigterm_while_a_request_runs_lets_it_end_and_exits_with_0() -> None:
    process = ServeProcess("--grace", "200")
    body = {
        "prompt": PROBLEM,
        "response": "1+2=3",
        "scorer": "mc",
        "scorer_settings": {"num_samples": 2000},
    }
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx.post, f"{process.url}/v1/score", json=body, timeout=120)
        eventually(lambda: bool(httpx.get(f"{process.url}/health").json()["running"]))
        assert not answer.done()
        assert process.stop() == 0
        assert answer.result().status_code == 200
    assert [json.loads(line)["status"] for line in process.log if "/v1/score" in line] == [200]
