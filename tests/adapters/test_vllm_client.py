"""The client of vLLM servers against a server that answers as ours does on vLLM, and fails as
servers do.
"""

import base64
import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import fields
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import ValidationError

from dise_adapters.embedded import CountdownPredictor
from dise_adapters.vllm.server import http
from dise_adapters.vllm.wire import FORMS, READS, encode, pack, unpack
from dise_core import (
    LLM,
    Candidates,
    EngineConfig,
    InputError,
    Read,
    Reading,
    SamplingParams,
    TokenLogProbs,
    TopLogProbs,
)
from dise_core.arrays import Ids
from dise_core.errors import ModelError, PlanError, UnreachableError
from dise_core.noise import Noise
from dise_core.plans.reading import Guidance
from dise_core.plans.readouts import Distribution, Readout
from dise_core.plugins.discovery import installed_catalog
from dise_core.testing import ToyPredictor
from tests import calibrations, servers
from tests.adapters.agreement import assert_alike
from tests.commands import Dise
from tests.jsonlines import written
from tests.servers import address, serving

FOLDER = CountdownPredictor.folder()


def travelled(reads: str | bytes, text: Ids) -> list[Read]:
    """Return the Reads of a text that arrive as this JSON."""
    return [form.decoded(text) for form in READS.validate_json(reads, context=32)]


class Server(ThreadingHTTPServer):
    """Serves the embedded model's Reads; `failures` are the statuses of the next answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.predictor = LLM("countdown").predictor
        self.failures: list[int] = []
        self.asked: list[tuple[str, Any]] = []
        self.keys: list[str | None] = []
        self.elsewhere: str | None = None
        self.root = str(FOLDER)
        self.address = address(self)


class Handler(servers.Handler):
    server: Server

    def do_GET(self) -> None:
        self.server.keys.append(self.headers["Authorization"])
        self._send(
            200, {"data": [{"id": "countdown", "root": self.server.root, "max_model_len": 200}]}
        )

    def do_POST(self) -> None:
        body = self.body()
        self.server.keys.append(self.headers["Authorization"])
        self.server.asked.append((self.path, body))
        if self.server.elsewhere is not None:
            self.send(307, b"", {"Location": self.server.elsewhere + self.path})
        elif self.server.failures:
            status = self.server.failures.pop(0)
            self._send(status, {"error": {"message": f"failure {status}"}})
        else:
            self._send(200, {"rows": [self._packed(row) for row in body["rows"]]})

    def _packed(self, row: dict[str, Any]) -> str:
        reads = travelled(json.dumps(row["reads"]), np.array(row["token_ids"]))
        return base64.b64encode(pack(reads, self.server.predictor.read(reads)).tobytes()).decode()

    def _send(self, status: int, body: dict[str, Any]) -> None:
        self.send(status, json.dumps(body).encode())


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
        LLM(name).generate("8,3,5 -> 10", PARAMS) for name in (server.address, "countdown")
    )
    assert_alike(ours, theirs, 1e-6)
    for one, other in zip(ours[0].outputs, theirs[0].outputs, strict=True):
        tops, expected = (
            [[token for token, _ in each.top_logprobs] for each in output.tokens]
            for output in (one, other)
        )
        assert tops == expected
    assert {path for path, _ in server.asked} == {"/v1/dise/read"}
    assert LLM(server.address).predictor.info.max_length == 200


def test_no_proxy_of_the_environment_reads_along(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(Server()) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.address)
        LLM(server.address).score("8,3,5 -> 10", "5+8-3=10")
        assert (len(server.asked), len(proxy.asked)) == (1, 0)


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that would answer, while a key is set, and that nobody means to ask."""
    monkeypatch.setenv(http.KEY_VARIABLE, "sesame")
    with serving(Server()) as stranger:
        yield stranger
        assert (stranger.keys, stranger.asked) == ([], [])


def test_key_and_texts_go_to_the_server_that_is_named_and_by_no_redirect_further(
    server: Server, stranger: Server
) -> None:
    llm = LLM(server.address)
    llm.score("8,3,5 -> 10", "5+8-3=10")
    assert server.keys == ["Bearer sesame"] * 2
    assert len(server.asked) == 1
    server.elsewhere = stranger.address
    with pytest.raises(ModelError, match=r"answered 307: .*; redirects are not followed: name"):
        llm.score("8,3,5 -> 10", "5+8-3=10")
    assert server.keys == ["Bearer sesame"] * 3


def test_a_run_on_a_server_goes_on_where_it_is_named_again(
    dise: Dise, server: Server, stranger: Server, tmp_path: Path
) -> None:
    """The settings beside its answers name it, and are only compared."""
    lines, output = tmp_path / "in", tmp_path / "out"
    written(lines, *[{"prompt": "8,3,5 -> 10", "response": text} for text in ("5+5=10", "8+3=11")])
    line = ("score", "--input", lines, "--output", output, "--model")
    ended = dise(*line, server.address)
    assert ended.code == 0, ended.err
    first, second = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(first)
    assert "holds a run with model=" in dise(*line, "countdown", "--resume").err
    assert (output.read_bytes(), {*server.keys}) == (first, {"Bearer sesame"})
    assert dise(*line, server.address, "--resume").code == 0
    again = output.read_bytes().splitlines()[1]
    assert json.loads(again)["outputs"] == json.loads(second)["outputs"]


SETTING = {"dataset": "countdown-short", "sampling": {"max_tokens": 8}, "published": {
    "percent": 50, "questions": 1, "source": "a table"}}  # fmt: skip
ONE_WAY: Any = {"dataset": "countdown-short", "ways": {"a": {"max_tokens": 8}}}
RECIPE, COMPARED = ("eval", "--recipe"), ("eval", "compare")


@pytest.mark.parametrize(
    ("verb", "content", "role"),
    [
        (RECIPE, {**SETTING, "model": "URL"}, "model"),
        (RECIPE, {**SETTING, "model": "URL#FOLDER"}, "model"),
        (RECIPE, {**SETTING, "recipes": {"a": {"model": "URL"}}}, "model"),
        (COMPARED, {**ONE_WAY, "model": "URL"}, "model"),
        (COMPARED, {**ONE_WAY, "judge": "URL"}, "judge"),
        (COMPARED, {**ONE_WAY, "shared": {"model": "URL"}}, "model"),
        (COMPARED, {**ONE_WAY, "ways": {"a": {"model": "URL"}}}, "model"),
    ],
)
def test_no_file_sends_texts_or_a_key_to_a_server(
    dise: Dise, stranger: Server, tmp_path: Path, verb: tuple[str, ...], content: Any, role: str
) -> None:
    text = json.dumps(content).replace("URL", stranger.address).replace("FOLDER", str(FOLDER))
    (tmp_path / "file.json").write_text(text)
    run = dise(*verb, tmp_path / "file.json", "--limit", 1, "--output", tmp_path / "run")
    assert (run.code, len(run.err.splitlines())) == (2, 1)
    assert f" names a server as its {role}, '{stranger.address}" in run.err
    assert f"If you trust it, name it yourself, with --{role} URL." in run.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", [RECIPE, COMPARED])
def test_who_runs_a_strangers_file_may_name_a_server_instead_of_its_own(
    dise: Dise, server: Server, stranger: Server, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    content = (SETTING if verb == RECIPE else ONE_WAY) | {"model": stranger.address}
    written(tmp_path / "file.json", content)
    line = (*verb, tmp_path / "file.json", "--limit", 1, "--output", tmp_path / "run")
    for _ in ("begun", "again"):
        run = dise(*line, "--model", server.address)
        assert run.code == 0, run.err
    assert {*server.keys} == {"Bearer sesame"}
    assert server.asked
    journal = tmp_path / "run" / "journal.jsonl"
    journal.write_text(journal.read_text().replace(server.address, stranger.address))
    refused = dise(*line, "--model", server.address)
    assert f"holds a run with model='{stranger.address}', and this run has model=" in refused.err


@pytest.mark.parametrize("line", [
    "eval best-of-n --dataset countdown-short --limit 1 --output run",
    "calibrate run --output fitted.json --max-risk 0.9",
    "generate --input in.jsonl --output out.jsonl --resume",
    "generate --input in.jsonl --output shards --shard 1/1 --seed 1 --resume",
    "score --response 1+2 --calibration calibration.json",
])  # fmt: skip
def test_a_server_that_the_files_of_a_run_name_is_never_asked(
    dise: Dise, stranger: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    named = {"command": "generate", "model": stranger.address}
    written(tmp_path / "in.jsonl", {"prompt": "8,3,5 -> 10"})
    for folder in ("run", "shards"):
        (tmp_path / folder).mkdir()
    key = {**named, "experiment": "sampled", "settings": {"scorers": ["dise:full"]}}
    written(tmp_path / "run" / "journal.jsonl", key)
    score = {"score": {"scorer": "dise", "selector": "last-10"}}
    written(tmp_path / "out.jsonl", {**named, "line": 1, "outputs": [score], "usage": {}})
    written(tmp_path / "out.jsonl.settings.json", {"made_with": named})
    written(tmp_path / "shards" / "dise-run.json", {**named, "num_shards": 1, "ending": "jsonl"})
    written(tmp_path / "calibration.json", calibrations.RECORD | {"model": stranger.address})
    run = dise(*line.split())
    assert (run.code, len(run.err.splitlines())) == (2, 1), run.err


def test_two_failures_and_then_an_answer_is_an_answer(server: Server) -> None:
    llm = LLM(server.address)
    server.failures = [500, 503]
    answers, expected = (each.score("8,3,5 -> 10", "5+8-3=10") for each in (llm, LLM("countdown")))
    assert_alike(answers, expected, 1e-6)
    assert len(server.asked) == 3


def test_a_server_without_our_plugin_says_how_to_start_it(server: Server) -> None:
    llm = LLM(server.address)
    server.failures = [404]
    with pytest.raises(ModelError, match="VLLM_PLUGINS=dise,dise_http"):
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
        answers = llm.score(["8,3,5 -> 10"] * 32, ["5+8-3=10"] * 32, on_error="return")
    assert [type(answer.error) for answer in answers] == [UnreachableError] * 32
    assert "cannot be reached" in str(answers[31].error)


def test_a_proxy_without_its_server_is_not_asked_again_for_each_request(server: Server) -> None:
    llm = LLM(server.address)
    server.failures = [503] * 100
    prompts, texts = ["8,3,5 -> 10"] * 4, ["5+8-3=10", "5+8=13", "8-5=3", "3+5=8"]
    answers = llm.score(prompts, texts, on_error="return")
    assert {type(answer.error) for answer in answers} == {UnreachableError}
    assert len(server.asked) == http.ATTEMPTS


def test_no_server_and_no_tokenizer_are_told_apart(server: Server) -> None:
    with pytest.raises(ModelError, match="cannot be reached"):
        LLM("http://127.0.0.1:1")
    server.root = "/no/such/folder"
    with pytest.raises(ModelError, match="whose tokenizer is not here; name it"):
        LLM(server.address)
    assert LLM(f"{server.address}#{FOLDER}").predictor.info.vocab_size == 32


def reads() -> list[Read]:
    ids, positions = np.arange(9), np.array([1, 4, 8])
    return [
        Read(ids, positions, TokenLogProbs(np.array([3, 2, 1]))),
        Read(ids, positions, TopLogProbs(3)),
        Read(ids, positions, TopLogProbs(2, (7, 30), np.array([3, 2, 1]), with_entropy=True)),
        Read(ids, positions, TopLogProbs(40, (5,))),
        Read(ids, positions, Candidates(0.7, 0.9, 5, Noise(2**63, 2**64 - 1, 3), "margin", (26,))),
        Read(ids, positions, Candidates()),
        Read(ids, positions, Candidates(allowed=(3, 5, 9), bias=((5, 1.5), (9, -100.0)))),
        Read(ids, positions, Distribution()),
        Read(ids, positions[:0], Candidates()),
    ]


def test_reads_and_readings_survive_the_wire() -> None:
    predictor = LLM("countdown").predictor
    received = travelled(READS.dump_json(list(map(encode, reads()))), np.arange(9))
    expected = predictor.read(reads())
    for one, other in zip(predictor.read(received), expected, strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
        np.testing.assert_array_equal(one.logprobs, other.logprobs)
    for one, other in zip(unpack(pack(received, expected), received, 32), expected, strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
        np.testing.assert_array_equal(one.logprobs, other.logprobs)
        np.testing.assert_allclose(one.confidences, other.confidences, atol=1e-7)


def test_a_read_of_no_position_needs_no_numbers() -> None:
    read = Read(np.arange(3), np.zeros(0, np.int64), TopLogProbs(2, (5,)))
    vector = pack([read], [Reading.empty()])
    [reading] = unpack(vector, [read], 32)
    assert (len(vector), reading.token_ids.shape) == (0, (0, 3))


OUTSIDE = r"\n.*token id (32|99) .*ids are 0 to 31"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": [9]}, r"positions outside 0\.\.8"),
        ({"positions": ["x"]}, "flat list of integers"),
        ({"readout": "top_logprobs", "k": 0}, "k\n.*greater than or equal to 1"),
        ({"readout": "top_logprobs", "k": 1, "ids": [32]}, f"ids{OUTSIDE}"),
        ({"readout": "top_logprobs", "k": 1, "ids": [1] * 4097}, "ids\n.*at most 4096 items"),
        ({"readout": "top_logprobs", "k": 1, "targets": [99]}, f"targets{OUTSIDE}"),
        ({"readout": "top_logprobs", "k": 1, "targets": [1, 2]}, "1 positions but 2 targets"),
        ({"readout": "token_logprobs", "targets": [32]}, f"targets{OUTSIDE}"),
        ({"readout": "token_logprobs", "targets": []}, "1 positions but 0 targets"),
        ({"temperature": 1.0}, "need noise"),
        ({"temperature": float("nan")}, "temperature\n.*finite number"),
        ({"noise": [1, 2, -3]}, r"noise\.2\n.*greater than or equal to 0"),
        ({"forbidden": [99]}, f"forbidden{OUTSIDE}"),
        ({"allowed": [32]}, f"allowed{OUTSIDE}"),
        ({"bias": [[32, 1.0]]}, f"bias{OUTSIDE}"),
        ({"bias": [[3, 1], [3, 2]]}, "each token id may have one bias"),
        ({"bias": [[3, float("inf")]]}, "finite number"),
        ({"top_p": 0}, "top_p\n.*greater than 0"),
        ({"readout": "everything"}, "Input tag 'everything'"),
    ],
)
def test_what_no_model_could_answer_is_refused(changes: dict[str, Any], message: str) -> None:
    read = {"positions": [1], "readout": "candidates", **changes}
    with pytest.raises((ValidationError, PlanError), match=message):
        travelled(json.dumps([read]), np.arange(9))


def test_guidance_stays_at_home() -> None:
    read = Read(np.arange(3), np.array([1]), Candidates(), guidance=Guidance(np.arange(3), 1.0))
    with pytest.raises(InputError, match="needs the transformers engine"):
        encode(read)


def test_the_wire_has_every_field_of_a_readout() -> None:
    assert {*FORMS} == {*get_args(Readout)}
    for kind, form in FORMS.items():
        travelling = {field.name for field in fields(kind)}
        assert form.model_fields.keys() == travelling | {"positions", "readout"}


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"quantization": "int4"}])
def test_options_that_the_server_has_decided_are_refused(
    server: Server, options: dict[str, Any]
) -> None:
    [option] = options
    problem = f"does not heed {option}: leave it out; it heeds block_size, mask_token_id, rev"
    with pytest.raises(InputError, match=problem):
        LLM(server.address, **options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"engine": "vllm", "device": "cpu"}, "leave out device;"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size and vllm_options need engine='vllm'"),
    ],
)
def test_vllm_has_options_of_its_own_and_chooses_its_device(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        LLM("countdown", **options)


def test_what_is_an_engines_default_needs_no_engine() -> None:
    assert LLM(ToyPredictor(), tensor_parallel_size=1, vllm_options={})
    installed_catalog().check_engine(EngineConfig(engine="vllm", vllm_options={"a": 1}))
