"""Whether two LaTeX answers are equal as mathematics: decided by sympy in a separate process, which
is killed when it takes too long.
"""

from __future__ import annotations

import atexit
import multiprocessing
import signal
from multiprocessing.connection import Connection
from typing import Any

MAX_LENGTH = 300
"""The most characters in an answer that is compared as mathematics."""

SECONDS = 5.0
"""The time limit of one comparison."""

START_SECONDS = 60.0
"""The time limit for the process to start."""


def are_equal(one: str, other: str) -> bool:
    """Return whether sympy finds them equal; False if one is too long or cannot be parsed, or if it
    takes longer than SECONDS.
    """
    if max(len(one), len(other)) > MAX_LENGTH:
        return False
    return _worker.ask(one, other)


class _Worker:
    """The process that compares, started when first needed and again after it was killed."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Any = None

    def ask(self, one: str, other: str) -> bool:
        if self._process is None or not self._process.is_alive():
            self._start()
        try:
            self._pipe.send((one, other))
            if self._pipe.poll(SECONDS):
                return bool(self._pipe.recv())
        except (EOFError, OSError):
            pass
        except BaseException:  # or the next pair would be answered with this answer
            self.stop()
            raise
        self.stop()
        return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None

    def _start(self) -> None:
        self.stop()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        if self._pipe.poll(START_SECONDS):
            self._pipe.recv()


_worker = _Worker()
atexit.register(_worker.stop)


def _serve(pipe: Connection) -> None:
    """Answer pairs until the other end closes, within bounded memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks ends at Ctrl-C
    import resource

    from sympy import simplify
    from sympy.parsing.latex import parse_latex

    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
    pipe.send(True)
    while True:
        try:
            one, other = pipe.recv()
        except EOFError:
            return
        try:
            first, second = (parse_latex(text, backend="lark") for text in (one, other))
            pipe.send(bool(first == second or simplify(first - second) == 0))
        except Exception:  # sympy raises of many kinds on what it cannot read
            pipe.send(False)
