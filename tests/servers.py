"""Servers that tests run in a thread of their own, in place of those of others."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

S = TypeVar("S", bound=ThreadingHTTPServer)


class Handler(BaseHTTPRequestHandler):
    """Answers requests without a log."""

    def send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send one whole answer, of which HEAD gets the headers only."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self) -> Any:
        """Return the request's JSON."""
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(server: S) -> Iterator[S]:
    """Run the server until the block ends."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def address(server: ThreadingHTTPServer) -> str:
    """Return the server's URL."""
    return f"http://127.0.0.1:{server.server_port}"
