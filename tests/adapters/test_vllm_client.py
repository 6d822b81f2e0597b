"""The client of vLLM servers against a server that answers as ours does on vLLM, and fails as
servers do.
"""

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from dise_adapters.embedded import CountdownPredictor
from dise_adapters.vllm import http
from dise_adapters.vllm.wire import from_wire, pack, to_wire, unpack
from dise_core import (
    LLM,
    Candidates,
    InputError,
    Read,
    SamplingParams,
    ScoringParams,
    TokenLogProbs,
    TopLogProbs,
)
from dise_core.errors import ModelError, UnreachableError
from dise_core.noise import Noise
from dise_core.reading import Distribution, Guidance
from tests import servers
from tests.servers import address, serving

FOLDER = CountdownPredictor.folder()


class Server(ThreadingHTTPServer):
    """Serves the embedded model's Reads; `failures` are the statuses of the next answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.predictor = LLM("countdown").predictor
        self.failures: list[int] = []
        self.asked: list[tuple[str, Any]] = []
        self.answer: bytes | None = None
        self.root = str(FOLDER)
        self.address = address(self)


class Handler(servers.Handler):
    server: Server

    def do_GET(self) -> None:
        self._send(
            200, {"data": [{"id": "countdown", "root": self.server.root, "max_model_len": 200}]}
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        if self.server.failures:
            status = self.server.failures.pop(0)
            self._send(status, {"error": {"message": f"failure {status}"}})
        else:
            self._send(200, {"rows": [self._packed(row) for row in body["rows"]]})

    def _packed(self, row: dict[str, Any]) -> str:
        reads = [from_wire(asked, np.array(row["token_ids"]), 32) for asked in row["reads"]]
        return base64.b64encode(pack(reads, self.server.predictor.read(reads)).tobytes()).decode()

    def _send(self, status: int, body: dict[str, Any]) -> None:
        self.send(status, self.server.answer or json.dumps(body).encode())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(http, "wait_exponential", lambda **_: lambda _state: 0)
    with serving(Server()) as server:
        yield server


PARAMS = SamplingParams(
    max_tokens=16, block_length=16, tokens_per_step=8, temperature=0.9, n=2, logprobs=2, seed=0
)


def test_a_server_writes_and_scores_as_the_model_itself(server: Server) -> None:
    ours, theirs = (
        LLM(name).generate("8,3,5 -> 10", PARAMS)[0] for name in (server.address, "countdown")
    )
    assert [output.token_ids for output in ours.outputs] == [
        output.token_ids for output in theirs.outputs
    ]
    for one, other in zip(ours.outputs, theirs.outputs, strict=True):
        assert one.score.value == pytest.approx(other.score.value, abs=1e-6)
        for ours_token, theirs_token in zip(one.tokens, other.tokens, strict=True):
            assert [token for token, _ in ours_token.top_logprobs] == [
                token for token, _ in theirs_token.top_logprobs
            ]
    assert {path for path, _ in server.asked} == {"/v1/dise/read"}
    assert LLM(server.address).predictor.info.max_length == 200


def test_two_failures_and_then_an_answer_is_an_answer(server: Server) -> None:
    llm = LLM(server.address)
    server.failures = [500, 503]
    [answer] = llm.score("8,3,5 -> 10", "5+8-3=10")
    [expected] = LLM("countdown").score("8,3,5 -> 10", "5+8-3=10")
    assert answer.outputs[0].score.value == pytest.approx(expected.outputs[0].score.value, abs=1e-6)
    assert len(server.asked) == 3


def test_a_refusal_is_not_tried_again(server: Server) -> None:
    llm = LLM(server.address)
    server.failures = [400]
    with pytest.raises(InputError, match="answered 400: failure 400"):
        llm.score("8,3,5 -> 10", "5+8-3=10")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("failures", "message"),
    [([500] * 9, "answered 500: failure 500"), ([404], "VLLM_PLUGINS=dise,dise_http")],
)
def test_failures_that_stay_are_one_line(server: Server, failures: list[int], message: str) -> None:
    llm = LLM(server.address)
    server.failures = failures
    with pytest.raises(ModelError, match=message):
        llm.score("8,3,5 -> 10", "5+8-3=10")


def test_a_server_that_dies_is_known_to_all_its_requests_at_once() -> None:
    class Dying(Server):
        """Dies when it is asked for Reads."""

        def process_request(self, request: Any, client_address: Any) -> None:
            if request.recv(4, socket.MSG_PEEK) == b"POST":
                threading.Thread(target=self.shutdown).start()
                self.server_close()
                self.shutdown_request(request)
            else:
                super().process_request(request, client_address)

    with serving(Dying()) as server:
        llm = LLM(server.address)
        began = time.monotonic()
        answers = llm.score(["8,3,5 -> 10"] * 32, ["5+8-3=10"] * 32, on_error="return")
        assert time.monotonic() - began < 30
    assert [type(answer.error) for answer in answers] == [UnreachableError] * 32
    assert "cannot be reached" in str(answers[31].error)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_without_its_server_is_not_asked_again_for_each_request(
    server: Server, status: int
) -> None:
    llm = LLM(server.address)
    server.failures = [status] * 100
    prompts, texts = ["8,3,5 -> 10"] * 4, ["5+8-3=10", "5+8=13", "8-5=3", "3+5=8"]
    answers = llm.score(prompts, texts, on_error="return")
    assert {type(answer.error) for answer in answers} == {UnreachableError}
    assert len(server.asked) == http.ATTEMPTS


def test_no_server_no_json_and_no_tokenizer_are_told_apart(server: Server) -> None:
    with pytest.raises(ModelError, match="cannot be reached"):
        LLM("http://127.0.0.1:1")
    server.root = "/no/such/folder"
    with pytest.raises(ModelError, match="whose tokenizer is not here; name it"):
        LLM(server.address)
    assert LLM(f"{server.address}#{FOLDER}").predictor.info.vocab_size == 32
    server.answer = b"<html>"
    with pytest.raises(ModelError, match="is it a vLLM server"):
        LLM(server.address)


def test_answers_of_another_shape_are_refused(server: Server) -> None:
    llm = LLM(server.address)
    server.answer = json.dumps(
        {"rows": [base64.b64encode(np.zeros(3, np.float32).tobytes()).decode()]}
    ).encode()
    with pytest.raises(ModelError, match="same version of dise"):
        llm.score("8,3,5 -> 10", "5+8-3=10", ScoringParams(selector="full"))


def reads() -> list[Read]:
    ids, positions = np.arange(9), np.array([1, 4, 8])
    return [
        Read(ids, positions, TokenLogProbs(np.array([3, 2, 1]))),
        Read(ids, positions, TopLogProbs(3)),
        Read(ids, positions, Candidates(0.7, 0.9, 5, Noise(2**63, 2**64 - 1, 3), "margin", (26,))),
        Read(ids, positions, Candidates()),
        Read(ids, positions, Candidates(allowed=(3, 5, 9), bias=((5, 1.5), (9, -100.0)))),
        Read(ids, positions, Distribution()),
        Read(ids, positions[:0], Candidates()),
    ]


def test_reads_and_readings_survive_the_wire() -> None:
    predictor = LLM("countdown").predictor
    travelled = [
        from_wire(json.loads(json.dumps(to_wire(read))), read.token_ids, 32) for read in reads()
    ]
    expected = predictor.read(reads())
    for one, other in zip(predictor.read(travelled), expected, strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
        np.testing.assert_array_equal(one.logprobs, other.logprobs)
    for one, other in zip(unpack(pack(travelled, expected), travelled, 32), expected, strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
        np.testing.assert_array_equal(one.logprobs, other.logprobs)
        np.testing.assert_allclose(one.confidences, other.confidences, atol=1e-7)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"positions": [9], "readout": "top_logprobs", "k": 1}, r"positions must be in 0\.\.8"),
        ({"positions": [-1], "readout": "top_logprobs", "k": 1}, r"positions must be in 0\.\.8"),
        ({"positions": [1], "readout": "top_logprobs", "k": 0}, r"k must be in 1\.\.1000"),
        (
            {"positions": [1], "readout": "token_logprobs", "targets": [32]},
            r"targets must be in 0\.\.31",
        ),
        (
            {"positions": [1], "readout": "token_logprobs", "targets": []},
            "1 positions do not pair up with 0 targets",
        ),
        ({"positions": [1], "readout": "candidates", "temperature": 1.0}, "need noise"),
        (
            {"positions": [1], "readout": "candidates", "temperature": float("nan")},
            "temperature a number from 0",
        ),
        ({"positions": [1], "readout": "candidates", "noise": [1, 2, -3]}, "noise is"),
        (
            {"positions": [1], "readout": "candidates", "forbidden": [99]},
            r"forbidden must be in 0\.\.31",
        ),
        (
            {"positions": [1], "readout": "candidates", "allowed": [32]},
            r"allowed must be in 0\.\.31",
        ),
        (
            {"positions": [1], "readout": "candidates", "bias": [[32, 1.0]]},
            r"bias must be in 0\.\.31",
        ),
        ({"positions": [1], "readout": "candidates", "bias": [[3, 1], [3, 2]]}, "each id once"),
        ({"positions": [1], "readout": "candidates", "bias": [[3, float("inf")]]}, "finite number"),
        ({"positions": [1], "readout": "candidates", "bias": [3]}, "this is not a read"),
        ({"positions": [1], "readout": "candidates", "top_p": 0}, "top_p must be above 0"),
        ({"positions": [1], "readout": "everything"}, "unknown readout 'everything'"),
        ({"positions": ["x"], "readout": "distribution"}, "this is not a read|must be"),
        ({"readout": "distribution"}, "this is not a read: KeyError"),
    ],
)
def test_what_no_model_could_answer_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_wire(asked, np.arange(9), 32)


def test_guidance_stays_at_home() -> None:
    read = Read(np.arange(3), np.array([1]), Candidates(), guidance=Guidance(np.arange(3), 1.0))
    with pytest.raises(InputError, match="needs the transformers engine"):
        to_wire(read)


def test_options_that_the_server_has_decided_are_refused(server: Server) -> None:
    for options in ({"dtype": "bfloat16"}, {"device": "cpu"}, {"engine": "vllm"}):
        with pytest.raises(InputError, match="is the server's to choose"):
            LLM(server.address, **options)  # type: ignore[arg-type]


def test_vllm_options_need_vllm_and_it_chooses_its_device() -> None:
    with pytest.raises(InputError, match="leave out device"):
        LLM("countdown", engine="vllm", device="cpu")
    with pytest.raises(InputError, match="need engine='vllm'"):
        LLM("countdown", tensor_parallel_size=2)
