"""The server as a process: from SIGTERM on it takes no more requests and answers or fails every one that it has."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from fastapi import FastAPI

from dise_core import AsyncLLM

MARGIN = 5
"""Seconds for the last answers to reach their clients after the grace time."""


class GracefulServer(uvicorn.Server):
    """uvicorn, whose shutdown first closes the model, so that requests end with an answer and not with their connection."""

    def __init__(self, app: FastAPI, llm: AsyncLLM, host: str, port: int, grace: float) -> None:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=int(grace) + MARGIN,
            limit_concurrency=None,
        )
        super().__init__(config)
        self._llm = llm
        self._grace = grace

    def listen(self) -> socket.socket:
        """Return a socket that already takes connections, so that a client told of its address need not wait."""
        listening = self.config.bind_socket()
        listening.listen(self.config.backlog)
        return listening

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the model within the grace time, and the connections meanwhile."""
        await asyncio.gather(self._llm.close(self._grace), super().shutdown(sockets))
