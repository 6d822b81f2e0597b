"""Downloads from a hub that really answers, on loopback: what is tried again, what is not, and what
is said.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from dise_adapters.checkpoint.hub import read_config
from dise_core import InputError
from tests import servers

JSON = {"Content-Type": "application/json"}
CONFIG = b'{"model_type": "llada"}'
COMMIT = "0123456789abcdef0123456789abcdef01234567"

SCRIPT = """
import sys
from dise_adapters.checkpoint.hub import read_config
from dise_core import DiseError
try:
    print(read_config("someone/some-model"))
except DiseError as error:
    print(f"{type(error).__name__}: {error}")
"""


class Hub(ThreadingHTTPServer):
    """A hub of one model, whose first answers are the given failures."""

    def __init__(self, failures: list[int], config: bytes = CONFIG) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.failures = list(failures)
        self.config = config
        self.num_failed = 0
        self.num_fetched = 0


class Handler(servers.Handler):
    def do_GET(self) -> None:
        hub = self.server
        assert isinstance(hub, Hub)
        if hub.failures:
            hub.num_failed += 1
            self.send(hub.failures.pop(0), b"{}", {"X-Error-Code": "RepoNotFound"} | JSON)
        elif self.path.startswith("/api/"):
            tree = [{"type": "file", "path": "config.json", "size": len(hub.config), "oid": "a"}]
            info = {
                "id": "someone/some-model",
                "sha": COMMIT,
                "siblings": [{"rfilename": "config.json"}],
            }
            self.send(200, json.dumps(tree if "/tree/" in self.path else info).encode(), JSON)
        else:
            hub.num_fetched += self.command == "GET"
            self.send(200, hub.config, {"ETag": '"abc"', "X-Repo-Commit": COMMIT} | JSON)

    do_HEAD = do_GET


@contextmanager
def serving(hub: Hub) -> Iterator[str]:
    with servers.serving(hub):
        yield servers.address(hub)


def ask(endpoint: str, home: Path, script: str = SCRIPT, **environment: str) -> str:
    variables = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "PATH": "/usr/bin",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    if "PYTHONPATH" in os.environ:  # the tree under test, where it is not the installed one
        variables["PYTHONPATH"] = os.environ["PYTHONPATH"]
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=variables | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_a_busy_hub_is_asked_again(tmp_path: Path) -> None:
    hub = Hub(failures=[503, 500])
    with serving(hub) as endpoint:
        assert ask(endpoint, tmp_path) == "{'model_type': 'llada'}"
    assert hub.num_failed == 2


@pytest.mark.parametrize(
    ("status", "text"),
    [(404, "the hub has no model 'someone/some-model'"), (401, "someone/some-model")],
)
def test_a_refusal_is_final(tmp_path: Path, status: int, text: str) -> None:
    hub = Hub(failures=[status] * 50)
    with serving(hub) as endpoint:
        answer = ask(endpoint, tmp_path)
    assert answer.startswith("ModelError")
    assert text in answer
    assert hub.num_failed == 1


def test_a_hub_that_cannot_be_reached_says_what_to_do(tmp_path: Path) -> None:
    answer = ask("http://127.0.0.1:9", tmp_path)
    assert answer.startswith(
        "ModelError: model 'someone/some-model' is not on this machine and the hub cannot be "
        "reached"
    )
    assert "give the folder of a checkpoint" in answer


def test_offline_mode_fails_at_once_and_says_what_to_do(tmp_path: Path) -> None:
    answer = ask("http://127.0.0.1:9", tmp_path, HF_HUB_OFFLINE="1")
    assert "is not on this machine and the hub cannot be reached" in answer


def test_a_folder_that_does_not_exist_is_named() -> None:
    with pytest.raises(InputError, match=r"there is no folder './nowhere'"):
        read_config("./nowhere")


def test_a_bare_name_is_neither_folder_nor_hub_id() -> None:
    assert read_config("just-a-name") is None
