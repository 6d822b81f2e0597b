"""What an operator sets: names, keys, origins and defaults; what a server tells of itself, and how
it answers before its model is loaded.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest

from dise_app.server.limits import Defaults, Limits, api_keys
from dise_app.server.run import Loading
from dise_app.server.service import Service
from dise_core import AsyncLLM, InputError
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END
from tests.app.serving import ServeProcess, ServerThread, events_of, serving
from tests.ascii_model import AsciiPredictor

SCORE = {"prompt": "a", "response": "bb"}


def test_a_drained_service_still_names_its_model() -> None:
    service = Service(Limits())
    service.begin(AsyncLLM(ToyPredictor()))
    assert asyncio.run(service.drain(0)) == 0
    assert service.model == ToyPredictor().info.name


def test_a_model_is_served_under_the_names_given() -> None:
    limits = Limits(served_model_name=("gpt-4o", "org/other"))
    with serving(AsyncLLM(ToyPredictor()), limits) as url:
        listed = httpx.get(f"{url}/v1/models").json()["data"]
        assert [(each["id"], each["root"]) for each in listed] == [
            ("gpt-4o", "toy"),
            ("org/other", "toy"),
        ]
        assert httpx.get(f"{url}/v1/models/org/other").json() == listed[1]
        assert httpx.get(f"{url}/v1/models/toy").status_code == 404
        for name, status in (("gpt-4o", 200), ("org/other", 200), (None, 200), ("toy", 404)):
            answer = httpx.post(f"{url}/v1/score", json={**SCORE, "model": name})
            assert answer.status_code == status
            assert status == 404 or answer.json()["model"] == "gpt-4o"
        message = answer.json()["error"]["message"]
        assert message == "no model 'toy' here, only 'gpt-4o', 'org/other'"


def test_any_of_several_keys_is_taken_and_no_other() -> None:
    with serving(AsyncLLM(ToyPredictor()), api_key=("one", "tw\u00f6")) as url:
        for given, status in (
            ("Bearer one", 200),
            ("bearer one", 200),
            ("Bearer tw\u00f6", 200),
            ("Bearer on", 401),
            ("Bearer onee", 401),
            ("Bearer", 401),
            ("Basic one", 401),
            ("", 401),
        ):
            headers = {b"Authorization": given.encode()}
            for path in ("/v1/models", "/version", "/tokenizer_info"):
                assert httpx.get(f"{url}{path}", headers=headers).status_code == status, given
        health = httpx.get(f"{url}/health")
        assert (health.status_code, "toy" in health.text) == (200, False)


def test_keys_come_from_the_environment_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISE_API_KEY", raising=False)
    assert api_keys(None) == ()
    file = tmp_path / "keys"
    file.write_text("one\n\n  two \n")
    monkeypatch.setenv("DISE_API_KEY", " zero ")
    assert api_keys(file) == ("zero", "one", "two")


def test_pages_of_allowed_origins_may_call_and_others_may_not() -> None:
    asking = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    limits = Limits(allowed_origins=("https://app.example",))
    with serving(AsyncLLM(ToyPredictor()), limits, "key") as url:
        for origin, status in (("https://app.example", 200), ("https://evil.example", 400)):
            headers = {"Origin": origin}
            preflight = httpx.options(f"{url}/v1/score", headers={**headers, **asking})
            assert preflight.status_code == status
            allowed = origin if status == 200 else None
            assert preflight.headers.get("access-control-allow-origin") == allowed
            refused = httpx.post(f"{url}/v1/score", json=SCORE, headers=headers)
            assert refused.status_code == 401
            assert refused.headers.get("access-control-allow-origin") == allowed
            assert "access-control-allow-credentials" not in refused.headers
    with serving(AsyncLLM(ToyPredictor()), Limits(allowed_origins=("*",))) as url:
        answer = httpx.post(f"{url}/v1/score", json=SCORE, headers={"Origin": "null"})
        assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "https://", "a b"])
def test_what_no_browser_sends_as_its_origin_is_refused(origin: str) -> None:
    with pytest.raises(InputError, match="an origin is SCHEME://HOST"):
        Limits(allowed_origins=(origin,))


def nfe(url: str, **asked: Any) -> int:
    body = {"prompt": "ab", "max_tokens": 8, **asked}
    answer = httpx.post(f"{url}/v1/completions", json=body).json()
    return int(answer["dise"]["nfe"])


def test_defaults_apply_where_a_request_does_not_say_otherwise() -> None:
    """One pass for each step, and one for the score."""
    limits = Limits(default={"steps": 4, "max_tokens": 6, "scorer": "interleaved"})
    with serving(AsyncLLM(ToyPredictor()), limits) as url:
        score = httpx.post(f"{url}/v1/score", json=SCORE).json()["data"][0]["score"]
        assert score["scorer"] == "interleaved"
        asked = {"scorer": "dise"}
        assert nfe(url, dise=asked) == 4 + 1
        assert nfe(url, dise=asked | {"steps": 2}) == 2 + 1
        assert nfe(url, dise=asked | {"tokens_per_step": 1}) == 8 + 1, (
            "steps do not apply beside it"
        )
        body = {"prompt": "ab", "dise": {"forbidden_token_ids": [END]}}
        told = httpx.post(f"{url}/v1/completions", json=body).json()["choices"][0]["dise"]
        assert (told["score"]["scorer"], len(told["tokens"])) == ("interleaved", 6)


def test_a_default_of_a_strategy_does_not_apply_to_another() -> None:
    names = {"scorer", "scorer_settings", "selector", "n", "best_of", "stop_at", "seed"}
    defaults = Defaults(
        {"scorer": "mc", "scorer_settings": {"num_samples": 4}, "selector": "full", "best_of": 4}
    )
    assert defaults.complete({"seed": 1}, names) == {
        "scorer": "mc",
        "scorer_settings": {"num_samples": 4},
        "selector": "full",
        "best_of": 4,
        "seed": 1,
    }
    assert defaults.complete({"scorer": "dise", "n": 8}, names) == {"scorer": "dise", "n": 8}
    same = defaults.complete({"scorer": "mc", "selector": "last-3"}, names)
    assert (same["scorer_settings"], same["selector"]) == ({"num_samples": 4}, "last-3")
    assert defaults.complete({}, {"scorer"}) == {"scorer": "mc"}
    assert defaults.complete({"n": 1}, {"best_of"}) == {"n": 1, "best_of": 4}


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({}, True),
        ({"selector": "answer"}, True),
        ({"selector": "full"}, False),
        ({"scorer": "written"}, False),
    ],
)
def test_settings_of_the_default_selector_are_not_lent_to_another(
    asked: dict[str, Any], kept: bool
) -> None:
    settings = {"selector_settings": {"pattern": "a"}}
    defaults = Defaults({"selector": "answer", **settings})
    told = defaults.complete(asked, {"scorer", "selector", "selector_settings"})
    assert {name: told[name] for name in settings if name in told} == (settings if kept else {})


@pytest.mark.parametrize(
    ("default", "message"),
    [
        ({"colour": "red"}, "there is no setting 'colour'"),
        ({"logprobs": 3}, "there is no default for logprobs"),
        ({"scorer": "mc", "scorer_settings": {"k": 1}}, "there is no setting 'k'"),
    ],
)
def test_a_bad_default_is_told_before_any_request(default: dict[str, Any], message: str) -> None:
    llm = AsyncLLM(ToyPredictor())
    try:
        with pytest.raises(InputError, match=message):
            Service(Limits(default=default)).begin(llm)
    finally:
        asyncio.run(llm.close(0))


def test_tokens_there_and_back() -> None:
    with serving(AsyncLLM(AsciiPredictor(has_chat_template=True))) as url:
        told = httpx.post(f"{url}/tokenize", json={"prompt": "ab", "return_token_strs": True})
        assert told.json() == {
            "count": 2,
            "max_model_len": 1000,
            "tokens": [97, 98],
            "token_strs": ["a", "b"],
        }
        turns = [{"role": "user", "content": "a"}]
        ids = httpx.post(f"{url}/tokenize", json={"messages": turns}).json()["tokens"]
        text = httpx.post(f"{url}/detokenize", json={"tokens": ids}).json()
        assert text == {"prompt": "<user>a<assistant>"}
        assert httpx.post(f"{url}/tokenize", json={"prompt": ""}).json()["tokens"] == []
        info = httpx.get(f"{url}/tokenizer_info").json()
        assert (info["eos_token"], info["bos_token"]) == ("<end>", None)
        assert httpx.get(f"{url}/version").json() == {"version": version("dise")}


def test_a_streamed_response_ends_before_the_servers_default_stop_text() -> None:
    limits = Limits(default={"stop": ["="], "max_tokens": 24, "block_length": 12})
    with serving(AsyncLLM("countdown"), limits) as url:
        body = {"input": "83,18,75 -> 10", "stream": True}
        sent = httpx.post(f"{url}/v1/responses", json=body, timeout=60).text
    events = events_of(sent)
    [whole] = [event["text"] for event in events if event["type"] == "response.output_text.done"]
    assert whole
    assert "=" not in whole
    assert "".join(event.get("delta", "") for event in events) == whole


def test_a_model_in_blocks_streams_each_finished_block_with_its_score() -> None:
    body = {
        "messages": [{"role": "user", "content": "83,18,75 -> 10"}],
        "max_tokens": 40,
        "stream": True,
        "dise": {"selector": "response", "stream": "canvas"},
    }
    with serving(AsyncLLM("countdown-blocks")) as url:
        sent = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).text
    events = events_of(sent)
    scored = {
        token["position"]: token["logprob"]
        for event in events
        for token in event.get("dise", {}).get("canvas", {}).get("scored", [])
    }
    [tokens] = [
        choice["dise"]["tokens"]
        for event in events
        for choice in event["choices"]
        if "tokens" in choice.get("dise", {})
    ]
    assert len(scored) >= len(tokens) - 8
    for position, token in enumerate(tokens):
        if position in scored:
            assert token["logprob"] == pytest.approx(scored[position], abs=1e-4)


class Slow(ServerThread):
    """A server whose model is loaded once `go` is set; it fails with `error` if there is one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go, self.announced = threading.Event(), threading.Event()
        self.error, self.service = error, Service(Limits(grace=1))
        super().__init__(self.service, api_key="key")
        self.loading = Loading(self._load, self.server)

    def _load(self) -> None:
        assert self.go.wait(30)
        if self.error is not None:
            raise self.error
        self.service.begin(AsyncLLM(ToyPredictor()))
        self.announced.set()


HEADERS = {"Authorization": "Bearer key"}


def test_a_server_listens_while_its_model_is_loaded() -> None:
    with Slow() as slow:
        health = httpx.get(f"{slow.url}/health")
        assert (health.status_code, health.json()) == (503, {"status": "loading"})
        assert health.headers["retry-after"] == "1"
        early = httpx.post(f"{slow.url}/v1/score", json=SCORE, headers=HEADERS)
        assert (early.status_code, early.json()["error"]["code"]) == (503, "loading")
        assert httpx.post(f"{slow.url}/v1/score", json=SCORE).status_code == 401
        assert httpx.get(f"{slow.url}/").status_code == 200
        for path in ("/version", "/metrics"):
            assert httpx.get(f"{slow.url}{path}", headers=HEADERS).status_code == 200
        assert httpx.get(f"{slow.url}/v1/models", headers=HEADERS).status_code == 503
        slow.go.set()
        assert slow.announced.wait(30)
        assert httpx.get(f"{slow.url}/health").json()["status"] == "ok"
        late = httpx.post(f"{slow.url}/v1/score", json=SCORE, headers=HEADERS)
        assert late.status_code == 200
    slow.loading.end()
    assert slow.server.exit_code == 0


def test_a_server_ends_where_its_model_cannot_be_loaded() -> None:
    with Slow(InputError("no such model")) as slow:
        assert httpx.get(f"{slow.url}/health").status_code == 503
        slow.go.set()
        slow.thread.join(30)
        assert not slow.thread.is_alive()
        with pytest.raises(InputError, match="no such model"):
            slow.loading.end()


def test_a_port_that_is_taken_is_told_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [sys.executable, "-m", "dise", "serve", "--port", str(port)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"dise: cannot listen on port {port} of 127.0.0.1: Address already in use; choose others "
        "with --host and --port (0 takes a free one)\n"
    )


def test_the_options_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("key\n")
    with ServeProcess(
        *("--served-model-name", "one", "--served-model-name", "two"),
        *("--default", "max_tokens=4", "--default", "block_length=4"),
        *("--api-key-file", str(tmp_path / "keys"), "--allowed-origins", "https://app.example"),
    ) as process:
        assert "with an API key, at http" in process.said[-1]
        origin = {"Origin": "https://app.example", **HEADERS}
        listed = httpx.get(f"{process.url}/v1/models", headers=origin)
        assert [each["id"] for each in listed.json()["data"]] == ["one", "two"]
        assert listed.headers["access-control-allow-origin"] == "https://app.example"
        body = {"prompt": "1,2 -> 3"}
        answer = httpx.post(f"{process.url}/v1/completions", json=body, headers=HEADERS).json()
        assert len(answer["choices"][0]["dise"]["tokens"]) == 4
    assert process.process.returncode == 0
    assert all(json.loads(line)["status"] == 200 for line in process.log)
