"""The server as a process: it listens while its model loads; SIGTERM ends it in order."""

import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.server import HANDLED_SIGNALS

from dise_app.server.service import Service
from dise_core import DiseError

MARGIN = 5
"""Seconds after the last request has ended for responses to reach their clients."""


class GracefulServer(uvicorn.Server):
    """uvicorn's server. A shutdown closes the model: requests end with a response."""

    def __init__(self, app: FastAPI, service: Service, host: str, port: int) -> None:
        limits = service.limits
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http="h11",
            ws="none",
            log_level="warning",
            access_log=False,
            limit_concurrency=limits.max_connections + 1,  # it counts the one that asks, too
            timeout_keep_alive=math.ceil(limits.idle_timeout),
            timeout_graceful_shutdown=MARGIN,
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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the requests that have arrived whole, then the connections."""
        for listener in self.servers:
            listener.close()
        num_cut_off = await self._service.drain(self._grace)
        await super().shutdown(sockets)
        self._is_drained = num_cut_off == 0


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
