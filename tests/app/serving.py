"""Servers for tests: the command in a process of its own, and any model behind the real server in
this one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

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

    def __init__(self, *args: str, environment: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "dise", "serve", "--port", "0", *args]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(
            command, text=True, env=dict(os.environ) | dict(environment or {}), **pipes
        )  # type: ignore[call-overload]
        self.log: list[str] = []
        self._reader = threading.Thread(
            target=lambda: self.log.extend(self.process.stderr), daemon=True
        )
        self._reader.start()
        self.said = [self.process.stdout.readline() for _ in range(2)]
        _, _, self.url = self.said[-1].strip().rpartition(" at ")
        assert self.url.startswith("http://"), f"no address in {self.said}; the log says {self.log}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal if it still runs, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(60)
        self._reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        return int(code)


class ServerThread:
    """A server on a free port of loopback, in a thread of this process."""

    def __init__(self, service: Service, **options: Any) -> None:
        """options: those of create_app."""
        self.server = GracefulServer(create_app(service, **options), service, "127.0.0.1", 0)
        self.listening = self.server.listen()
        self.url = "http://{}:{}".format(*self.listening.getsockname())
        run = self.server.serve([self.listening])
        self.thread = threading.Thread(target=lambda: asyncio.run(run), daemon=True)
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(30)
        self.listening.close()


Serve = Callable[..., str]
"""The fixture `served`: takes what `serving` takes, and returns the server's address."""


@contextmanager
def serving(
    llm: AsyncLLM,
    limits: Limits | None = None,
    api_key: str | Collection[str] | None = None,
    hosts: Hosts | None = None,
    options: Fields | None = None,
) -> Iterator[str]:
    """Serve a model from a thread of this process; yield its address."""
    service = Service(limits or Limits(grace=5), llm, options)
    with ServerThread(service, api_key=api_key, hosts=hosts) as running:
        yield running.url


def events_of(stream: str) -> list[Any]:
    """Return the records of server-sent events."""
    lines = (line.partition("data: ")[2] for line in stream.splitlines())
    return [json.loads(line) for line in lines if line.startswith("{")]
