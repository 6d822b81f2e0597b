"""Servers for tests: the command in a process of its own, and any model behind the real server in
this one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from dise_app.server.app import create_app
from dise_app.server.guards.hosts import Hosts
from dise_app.server.limits import Limits
from dise_app.server.run import GracefulServer
from dise_app.server.service import Service
from dise_core import AsyncLLM
from dise_core.records import Fields


def imported(name: str) -> Any:
    """Import a client, which may warn of whatever it likes, or skip."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


class ServeProcess:
    """`dise serve` on a free port of loopback; its log is read to the end when it is stopped."""

    def __init__(
        self, *args: str, environment: Mapping[str, str] | None = None, files: int | None = None
    ) -> None:
        """files: how many it may open."""
        limited = () if files is None else ("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh")
        command = [*limited, sys.executable, "-m", "dise", "serve", "--port", "0", *args]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(
            command, text=True, env=dict(os.environ) | dict(environment or {}), **pipes
        )  # type: ignore[call-overload]
        self.log: list[str] = []
        self._reader = threading.Thread(
            target=lambda: self.log.extend(self.process.stderr), daemon=True
        )
        self._reader.start()
        line = self.process.stdout.readline()
        _, _, self.url = line.strip().rpartition(" at ")
        assert self.url.startswith("http://"), f"no address in {line!r}; the log says {self.log}"

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal if it still runs, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(60)
        self._reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        return int(code)


@contextmanager
def serving(
    llm: AsyncLLM,
    limits: Limits | None = None,
    api_key: str | Collection[str] | None = None,
    hosts: Hosts | None = None,
    options: Fields | None = None,
) -> Iterator[str]:
    """Serve a model from a thread of this process; yield its address."""
    service = Service(limits or Limits(grace=5), options=options)
    service.begin(llm)
    app = create_app(service, api_key=api_key, hosts=hosts)
    server = GracefulServer(app, service, "127.0.0.1", 0)
    listening = server.listen()
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
