"""Servers that answer anything at all, in place of a vLLM server."""

from __future__ import annotations

import base64
import json
import re
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from http.server import ThreadingHTTPServer
from itertools import repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_adapters.embedded import CountdownPredictor
from dise_adapters.vllm.server import http
from dise_adapters.vllm.server.http import Connection
from dise_adapters.vllm.server.remote import ServerJudgeReader, ServerReader
from dise_adapters.vllm.wire import pack
from dise_core import LLM, Candidates, Read, Reading, TokenLogProbs, TopLogProbs
from dise_core.errors import DiseError, InputError, ModelError, ModelOutputError
from tests import servers
from tests.hostile.bounds import bounded, cases
from tests.servers import address, serving

FOLDER = CountdownPredictor.folder()
VOCAB_SIZE = 32
MEGABYTE = b" " * 2**20

Answer = Callable[["Handler"], None]


class Hostile(ThreadingHTTPServer):
    """Answers with `answer`; `seen` are the paths asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: Answer = says({})
        self.seen: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.address = address(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may leave in the middle."""


class Handler(servers.Handler):
    server: Hostile
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append(self.path)
        self.server.headers.append(dict(self.headers))
        self.server.answer(self)

    def start(self, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()


def sends(content: bytes, status: int = 200, kind: str = "application/json") -> Answer:
    def answer(handler: Handler) -> None:
        handler.start(status, Content_Type=kind, Content_Length=str(len(content)))
        handler.wfile.write(content)

    return answer


def says(value: Any) -> Answer:
    return sends(json.dumps(value).encode())


def chunks(pieces: Iterator[bytes], **headers: str) -> Answer:
    """Send pieces for as long as the client takes them, in no declared length."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True
        handler.start(Content_Type="application/json", Connection="close", **headers)
        with suppress(OSError):
            for piece in pieces:
                handler.wfile.write(piece)
                handler.wfile.flush()

    return answer


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with serving(Hostile()) as server:
        yield server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SECONDS", 1.0)
    monkeypatch.setattr(http, "ATTEMPTS", 2)
    monkeypatch.setattr(http, "wait_exponential", lambda **_: lambda _state: 0)


TEXT, OTHER = np.arange(1, 8), np.arange(2, 9)
POSITIONS = np.array([2, 4])


def own(text: np.ndarray) -> Read:
    return Read(text, POSITIONS, TokenLogProbs(text[POSITIONS]))


READS = [own(TEXT), Read(TEXT, POSITIONS, TopLogProbs(2)), Read(OTHER, POSITIONS, Candidates())]
OWN = [own(TEXT), own(OTHER)]


def packed(reads: list[Read]) -> str:
    vectors = [pack([read], LLM("countdown").predictor.read([read])) for read in reads]
    return base64.b64encode(np.concatenate(vectors).astype("<f4").tobytes()).decode()


def judged(text: np.ndarray, index: int) -> dict[str, Any]:
    entries = [{str(token): {"logprob": -0.5, "rank": 1}} for token in text.tolist()]
    return {"index": index, "prompt_logprobs": [None, *entries[1:]]}


@cache
def connection(address: str) -> Connection:
    return Connection(address)


def read_remote(server: Hostile) -> list[Reading]:
    return ServerReader(connection(server.address), "m", VOCAB_SIZE).read(READS)


def read_judge(server: Hostile) -> list[Reading]:
    return ServerJudgeReader(connection(server.address), "m").read(OWN)


def checksum(text: np.ndarray) -> int:
    return zlib.crc32(text.astype("<i8").tobytes())


def good_answers() -> dict[str, tuple[Any, Callable[[Hostile], list[Reading]]]]:
    """What a vLLM server answers, and who asks."""
    remote = {
        "rows": [packed(READS[:2]), packed(READS[2:])],
        "checksums": [checksum(TEXT), checksum(OTHER)],
    }
    judge = {"choices": [judged(TEXT, 0), judged(OTHER, 1)]}
    return {"remote": (remote, read_remote), "judge": (judge, read_judge)}


GOOD = good_answers()


@pytest.mark.parametrize("kind", list(GOOD))
def test_good_answers_are_taken(server: Hostile, kind: str) -> None:
    content, ask = GOOD[kind]
    server.answer = says(content)
    readings = ask(server)
    assert [reading.logprobs.shape for reading in readings[:1]] == [(2,)]
    assert all((reading.logprobs <= 0).all() for reading in readings)


def spoilt(kind: str, **changes: Any) -> dict[str, Any]:
    """Return the good answer with some of its fields changed."""
    changed: dict[str, Any] = {**GOOD[kind][0], **changes}
    return changed


def floats(*numbers: float) -> str:
    return base64.b64encode(np.array(numbers, "<f4").tobytes()).decode()


ROWS = GOOD["remote"][0]["rows"]
NUMBERS = np.frombuffer(base64.b64decode(ROWS[0]), "<f4")
"""Two log-probabilities, then four ids, then theirs."""


def with_number(place: int, number: float) -> dict[str, Any]:
    numbers = NUMBERS.copy()
    numbers[place] = number
    return spoilt("remote", rows=[floats(*numbers), ROWS[1]])


def judge_with(logprob: Any) -> dict[str, Any]:
    choice = judged(TEXT, 0)
    choice["prompt_logprobs"][2] = {str(TEXT[2]): {"logprob": logprob}}
    return {"choices": [choice, judged(OTHER, 1)]}


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("remote", {}, "rows: Field required"),
        ("remote", {"rows": ["%", ROWS[1]]}, "not float32 in base64"),
        ("remote", {"rows": ROWS[:1]}, "answered 1 of 2 texts"),
        ("remote", {"rows": ROWS[::-1]}, "refused a read or answered another one"),
        ("remote", spoilt("remote", checksums=[1, 2]), "about other texts, or in another order"),
        ("remote", with_number(2, 0.5), "answered 0.5 as a token id"),
        ("remote", with_number(0, 0.5), "answered 0.5 as a log-probability"),
        ("remote", with_number(0, float("inf")), "answered inf as a log-probability"),
        ("judge", {"choices": [judged(TEXT, 0)]}, "each of the 2 prompts once"),
        ("judge", {"choices": [judged(TEXT, 0), judged(OTHER, 0)]}, "each of the 2 prompts once"),
        ("judge", {"choices": [judged(OTHER, 0), judged(TEXT, 1)]}, "left out token"),
        ("judge", {"choices": [judged(TEXT[:3], 0), judged(OTHER, 1)]}, "3 positions of a text"),
        ("judge", judge_with(0.5), "less than or equal to"),
        ("judge", judge_with(float("nan")), "finite number"),
    ],
)
def test_an_answer_that_is_none_is_one_clear_error(
    server: Hostile, kind: str, content: Any, message: str
) -> None:
    server.answer = says(content)
    with bounded(), pytest.raises(ModelError, match=message) as caught:
        GOOD[kind][1](server)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_nan_among_the_logprobs_fails_the_request_that_asked(server: Hostile) -> None:
    server.answer = says(with_number(0, float("nan")))
    assert np.isnan(read_remote(server)[0].logprobs[0])


@cache
def bomb() -> bytes:
    """A gzip stream that would grow to 128 MiB."""
    press = zlib.compressobj(wbits=31)
    return b"".join([*(press.compress(MEGABYTE) for _ in range(128)), press.flush()])


def one_by_one() -> Iterator[bytes]:
    for _ in range(100):
        yield b" "
        time.sleep(0.1)


def slow_head(handler: Handler) -> None:
    handler.close_connection = True
    with suppress(OSError):
        for letter in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20:
            handler.wfile.write(bytes([letter]))
            time.sleep(0.1)


ENDLESS: dict[str, tuple[Answer, str]] = {
    "spaces": (chunks(repeat(MEGABYTE, 8 * 1024)), "answered more than"),
    "declared": (
        lambda handler: handler.start(
            Content_Type="application/json", Content_Length=str(8 * 2**30)
        ),
        "took longer|cannot be reached",
    ),
    "a slow head": (slow_head, "took longer than 1 s"),
    "gzip": (chunks(iter([bomb()]), Content_Encoding="gzip"), "did not answer with JSON"),
    "drops": (chunks(one_by_one()), "took longer than 1 s"),
    "closed": (sends(b'{"rows": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"), "recursion limit"),
    "page": (sends(b"<html>", kind="text/html"), "is it a vLLM server"),
    "surrogate": (sends(b'{"rows": ["\\ud800"]}'), "did not answer with JSON"),
    "no content": (sends(b"", 204), "answered 204"),
    "error": (sends(b'{"error": {"message": "\\u001b[2J' + b"a" * 9_000 + b'"}}', 503), "503: "),
    "an endless error": (
        lambda handler: (handler.start(500), handler.wfile.write(MEGABYTE * 8))[0],
        "answered 500",
    ),
}


@pytest.mark.parametrize("name", list(ENDLESS))
def test_what_never_ends_is_cut_off(server: Hostile, name: str) -> None:
    server.answer, message = ENDLESS[name]
    with bounded(gigabytes=0.1), pytest.raises(ModelError, match=message) as caught:
        read_remote(server)
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


def test_redirects_are_not_followed(server: Hostile) -> None:
    server.seen.clear()
    server.answer = lambda handler: handler.start(
        307, Location=f"{server.address}/elsewhere", Content_Length="0"
    )
    with pytest.raises(ModelError, match="redirects are not followed"):
        read_remote(server)
    assert server.seen == ["/v1/dise/read"]


@pytest.mark.parametrize("status", [400, 422, 401, 429])
def test_only_what_the_request_is_to_blame_for_is_an_input_error(
    server: Hostile, status: int
) -> None:
    server.answer = sends(b'{"error": {"message": "no"}}', status)
    with pytest.raises(DiseError, match=f"answered {status}: no") as caught:
        read_remote(server)
    assert isinstance(caught.value, InputError) == (status in (400, 413, 422))


@pytest.mark.parametrize(
    "entry",
    [{"id": "m", "root": 3}, {"id": "m", "max_model_len": -4}, {"id": "m", "root": "a\x00b"}, []],
)
def test_a_server_that_misnames_its_model_is_one_clear_error(server: Hostile, entry: Any) -> None:
    server.answer = says({"data": [entry]})
    with bounded(), pytest.raises(ModelOutputError, match="another shape"):
        LLM(server.address)


def test_user_and_password_are_sent_and_never_shown(
    server: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(http.KEY_VARIABLE, "")
    address = server.address.replace("http://", "http://anna:s%40cret@")
    server.headers.clear()
    server.answer = says({"data": [{"id": "m", "root": str(FOLDER)}]})
    llm = LLM(address)
    expected = base64.b64encode(b"anna:s@cret").decode()
    assert server.headers[0]["Authorization"] == f"Basic {expected}"
    assert llm.predictor.info.name == server.address
    for answer in (sends(b"{", 200), sends(b"", 401), sends(b"", 500)):
        server.answer = answer
        with pytest.raises(ModelError) as caught:
            llm.score("8,3,5 -> 10", "5+8-3=10")
        shown = "".join(str(error) for error in chain(caught.value))
        assert "anna" not in shown
        assert "cret" not in shown


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "address",
    [
        "http://anna:secret@",
        "http://anna:secret@host:99999",
        "http://anna:secret@[::1",
        "http://host?key=secret",
        "http://anna:secret@" + "h" * 70_000,
    ],
)
def test_an_address_that_is_none_is_not_shown(address: str) -> None:
    with bounded(), pytest.raises(DiseError) as caught:
        Connection(address).model()
    assert "secret" not in str(caught.value)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["\ud800", "NaN", "-0.5", floats(1.0), floats(float("nan"))]),
)
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=3), scalars)


PART = re.compile(r'-?\d[-.e\d]*|"[^"]*"|\[[^][]*\]|\{[^{}]*\}|[][{}:,]')
"""Numbers, texts, innermost lists and objects, and what stands between them."""


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, bytes]:
    """Answers that are good but for a few parts, which are gone, twice there or anything else."""
    kind = draw(st.sampled_from(sorted(GOOD)))
    text = json.dumps(GOOD[kind][0])
    for _ in range(draw(st.integers(1, 3))):
        spans = [part.span() for part in PART.finditer(text)]
        start, stop = draw(st.sampled_from(spans or [(0, len(text))]))
        part, other = text[start:stop], json.dumps(draw(values))
        new = draw(st.sampled_from([other, other, "", part + part, f"{part}, {part}", "[" * 300]))
        text = text[:start] + new + text[stop:]
    return kind, text.encode("utf-8", "surrogatepass")


@cases(1 / 9)
@given(st.data())
def test_any_answer_ends_in_a_reading_or_in_our_error(server: Hostile, data: st.DataObject) -> None:
    kind, content = data.draw(answers())
    server.answer = sends(content)
    with bounded():
        try:
            readings = GOOD[kind][1](server)
        except DiseError:
            return
    for reading in readings:
        assert reading.logprobs.shape == reading.token_ids.shape
        assert not (reading.logprobs > 1e-3).any()
        assert ((reading.token_ids >= 0) & (reading.token_ids < VOCAB_SIZE)).all()
