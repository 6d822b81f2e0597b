"""A hub that really answers, on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
    """A hub of one model, the files of a folder, whose first answers are the given
    failures. fetched: the files that were sent whole. read: those of which parts were.
    """

    def __init__(self, folder: Path, failures: Sequence[int] = ()) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.failures = list(failures)
        self.num_failed = 0
        self.fetched, self.read = list[str](), list[str]()


def hub_of(folder: Path, failures: Sequence[int] = (), config: bytes = CONFIG) -> Hub:
    """Return a hub of a config.json alone, which is written into the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes(config)
    return Hub(folder, failures)


class Handler(servers.Handler):
    def do_GET(self) -> None:
        hub = self.server
        assert isinstance(hub, Hub)
        if hub.failures:
            hub.num_failed += 1
            self.send(hub.failures.pop(0), b"{}", {"X-Error-Code": "RepoNotFound"} | JSON)
        elif self.path.startswith("/api/"):
            files = [(path.name, path.stat().st_size) for path in hub.folder.iterdir()]
            tree = [{"type": "file", "path": f, "size": size, "oid": f} for f, size in files]
            siblings = [{"rfilename": file} for file, _ in files]
            info = {"id": "someone/some-model", "sha": COMMIT, "siblings": siblings}
            self.send(200, json.dumps(tree if "/tree/" in self.path else info).encode(), JSON)
        elif (path := hub.folder / self.path.rpartition("/")[2]).is_file():
            self._send_file(hub, path)
        else:
            self.send(404, b"", {"X-Error-Code": "EntryNotFound"})

    def _send_file(self, hub: Hub, path: Path) -> None:
        size = path.stat().st_size
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, end = (int(part[1]), min(int(part[2]) + 1, size)) if part else (0, size)
        self.send_response(206 if part else 200)
        headers = {"ETag": f'"{path.name}"', "X-Repo-Commit": COMMIT}
        for name, value in (headers | {"Content-Length": str(end - first)}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            (hub.read if part else hub.fetched).append(path.name)
            with path.open("rb") as file:
                file.seek(first)
                self.wfile.write(file.read(end - first))

    do_HEAD = do_GET


@contextmanager
def serving(hub: Hub) -> Iterator[str]:
    with servers.serving(hub):
        yield servers.address(hub)


def variables(endpoint: str, home: Path) -> dict[str, str]:
    """Return the environment of a process that asks this hub. home: of what it keeps."""
    variables = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "PATH": "/usr/bin",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    if "PYTHONPATH" in os.environ:  # the tree under test, where it is not the installed one
        variables["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return variables


def ask(endpoint: str, home: Path, script: str = SCRIPT, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=variables(endpoint, home) | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]
