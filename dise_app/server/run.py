"""The server as a process: after SIGTERM it refuses new requests, and answers or fails those that
it has.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from dise_core import AsyncLLM

MARGIN = 5
"""Seconds after the grace time for the last responses to reach their clients."""

KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than clients (httpx, and so openai: 5) and
proxies (nginx: 60) keep one, so that none sends a request on a connection that is being closed.
"""


class GracefulServer(uvicorn.Server):
    """uvicorn's server, which closes the model on shutdown, so that requests end with a response
    rather than a broken connection.
    """

    def __init__(self, app: FastAPI, llm: AsyncLLM, host: str, port: int, grace: float) -> None:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=int(grace) + MARGIN,
            limit_concurrency=None,
        )
        super().__init__(config)
        self._llm = llm
        self._grace = grace
        self._seconds = int(grace) + MARGIN
        self._signal: int | None = None
        self._is_drained = False

    @property
    def exit_code(self) -> int:
        """0 if every request got its own response (130 if Ctrl-C started the shutdown), else 1.

        It is 1 for a server that never ran or had to cut a request off, whatever the signal.
        """
        if not self._is_drained:
            return 1
        return 128 + signal.SIGINT if self._signal == signal.SIGINT else 0

    def listen(self) -> socket.socket:
        """Return a socket that already accepts connections, so that its address can be announced at
        once.
        """
        listening = self.config.bind_socket()
        listening.listen(self.config.backlog)
        return listening

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin the shutdown; a second Ctrl-C breaks the remaining connections.

        Unlike uvicorn's, it does not raise the signal again afterwards: the exit code tells how the
        shutdown ended.
        """
        self._signal = sig
        self.force_exit = self.force_exit or (self.should_exit and sig == signal.SIGINT)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the model within the grace time, and at the same time the connections."""
        loop = asyncio.get_running_loop()
        broken_after = loop.time() + self._seconds
        closing = self._llm.close(self._grace)
        num_cut_off, _ = await asyncio.gather(closing, super().shutdown(sockets))
        self._is_drained = num_cut_off == 0 and not self.force_exit and loop.time() < broken_after
