"""The server as a process: it listens while its model loads; SIGTERM ends it in order."""

import asyncio
import math
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.server import HANDLED_SIGNALS

from dise_app.server.guards.connections import BoundedConnection, protocol_of
from dise_app.server.limits import Limits
from dise_app.server.service import Service
from dise_core import DiseError

MARGIN = 5
"""Seconds after the grace time for the last responses to reach their clients."""

SPARE_FILES = 256
"""Open files that are no connections."""


class GracefulServer(uvicorn.Server):
    """uvicorn's server. A shutdown closes the model: requests end with a response."""

    def __init__(self, app: FastAPI, service: Service, host: str, port: int) -> None:
        limits = _within_open_files(service.limits)
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http=protocol_of(limits),
            ws="none",
            log_level="warning",
            access_log=False,
            timeout_keep_alive=math.ceil(limits.idle_timeout),
            timeout_graceful_shutdown=int(limits.grace) + MARGIN,
        )
        super().__init__(config)
        self._service, self._grace = service, limits.grace
        self._signal: int | None = None
        self._is_drained: bool | None = None

    @property
    def exit_code(self) -> int:
        """0, 130 after Ctrl-C, or 1 if it never ran or cut a request off."""
        if not self._is_drained:
            return 1
        return 128 + signal.SIGINT if self._signal == signal.SIGINT else 0

    def listen(self) -> socket.socket:
        """Return a socket that accepts connections. Raises DiseError if there is none."""
        host, port = self.config.host, self.config.port
        is_ipv6 = ":" in host
        try:
            return socket.create_server(
                (host, port),
                family=socket.AF_INET6 if is_ipv6 else socket.AF_INET,
                backlog=self.config.backlog,
                dualstack_ipv6=is_ipv6 and socket.has_dualstack_ipv6(),
            )
        except OSError as error:
            reason = (error.strerror or str(error)).partition(" (while")[0]
            raise DiseError(
                f"cannot listen on port {port} of {host}: {reason}; "
                "choose others with --host and --port (0 takes a free one)"
            ) from error

    def catch_signals(self) -> None:
        """Handle SIGTERM and Ctrl-C also before and after uvicorn's own run."""
        for number in HANDLED_SIGNALS:
            signal.signal(number, self.handle_exit)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin the shutdown; a second Ctrl-C ends the process at once. The exit code
        tells how it ended, where uvicorn's own raises the signal again.
        """
        if self.should_exit and sig == signal.SIGINT:
            cut_off = 1 if self.server_state.tasks else 128 + signal.SIGINT
            os._exit(cut_off if self._is_drained is None else self.exit_code)
        self._signal = sig
        self.should_exit = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        async with asyncio.TaskGroup() as group:
            checking = group.create_task(self._check_connections())
            await super().serve(sockets)
            checking.cancel()

    async def _check_connections(self) -> None:
        while True:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, BoundedConnection):
                    connection.check(now, self.should_exit)
            await asyncio.sleep(0.25)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the requests that have arrived whole, and the connections."""
        loop = asyncio.get_running_loop()
        broken_after = loop.time() + int(self._grace) + MARGIN
        draining = self._service.drain(self._grace)
        num_cut_off, _ = await asyncio.gather(draining, super().shutdown(sockets))
        self._is_drained = num_cut_off == 0 and loop.time() < broken_after


class Loading:
    """Loads a server's model in a thread, once. The server ends if that fails."""

    def __init__(self, load: Callable[[], None], server: GracefulServer) -> None:
        """load: loads the model, and lets the server's requests begin."""
        self._load, self._server = load, server
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="dise-loading", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._load()
        except BaseException as error:
            self._error = error
            self._server.should_exit = True

    def end(self) -> None:
        """Raise why the model could not be loaded; give up what is still being loaded."""
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._server.exit_code)


def _within_open_files(limits: Limits) -> Limits:
    num_needed = limits.max_connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_files = num_needed if hard == resource.RLIM_INFINITY else min(num_needed, hard)
    if soft != resource.RLIM_INFINITY and soft < num_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (num_files, hard))
    if num_files == num_needed:
        return limits
    fewer = max(1, num_files - min(SPARE_FILES, num_files // 2))
    print(
        f"dise: max_connections is {fewer}, not {limits.max_connections}: "
        f"this process may open only {num_files} files (ulimit -n)",
        file=sys.stderr,
    )
    return limits.model_copy(update={"max_connections": fewer})
