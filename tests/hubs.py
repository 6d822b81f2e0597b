"""A hub that really answers, on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

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
