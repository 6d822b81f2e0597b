"""Automata of constraints: small ones made here, others by workers, which can be ended."""

import atexit
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Any

import numpy as np

from dise_core.constraints.automaton import Automaton
from dise_core.constraints.constraint import Constraint, expression_of
from dise_core.constraints.expressions import automaton_of
from dise_core.constraints.small import is_small
from dise_core.constraints.worker import IDLE, MAX_BYTES, SECONDS
from dise_core.errors import InputError, OverloadedError, PlanError, shown
from dise_core.scoring.contract import call, origin

RUN = (
    "import sys; sys.path[:] = sys.argv[1:]; from dise_core.constraints.worker import main; main()"
)
"""A program of its own, so that a script that began this process never runs again."""

MAX_IDLE = 2
"""Workers that are kept though they have nothing to do."""


class StoppedError(Exception):
    """Nobody waits for a build any more."""


class Stop:
    """Ends a build from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._end: Callable[[], None] | None = None

    def set(self) -> None:
        """End the build, now or as soon as it begins."""
        with self._lock:
            self._is_set = True
            if self._end is not None:
                self._end()

    def check(self) -> None:
        """Raise StoppedError once it is set."""
        if self._is_set:
            raise StoppedError

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` if it is set inside. Raises StoppedError if it is set before."""
        with self._lock:
            self.check()
            self._end = end
        try:
            yield
        finally:
            with self._lock:
                self._end = None


@dataclass(frozen=True, slots=True)
class Source:
    """What an automaton is built from: an expression or, with a maker, the settings of
    that class, "module:name", as JSON. origin: what errors call the constraint, and its
    plugin.
    """

    text: str
    maker: str | None = None
    origin: tuple[str, str] = field(default=("", ""), compare=False)

    @classmethod
    def of(cls, constraint: Constraint) -> "Source":
        """Return a constraint's source. Raises InputError for what cannot be used."""
        if not constraint.in_child:
            return cls(call("constraint", constraint, expression_of, constraint))
        expression = constraint._short_expression()
        if expression is not None:
            return cls(expression)
        try:
            text = json.dumps(dict(constraint))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"the constraint's settings are no JSON: {error}", "constraint"
            ) from None
        kind = type(constraint)
        maker = f"{kind.__module__}:{kind.__qualname__}"
        return cls(text, maker, origin("constraint", constraint))

    @property
    def is_small(self) -> bool:
        """Whether an automaton is built of it in milliseconds."""
        return self.maker is None and is_small(self.text)

    @property
    def key(self) -> bytes:
        """A short name that differs for every source."""
        text = f"{self.maker}\0{self.text}".encode(errors="surrogatepass")
        return hashlib.sha256(text).digest()

    def __str__(self) -> str:
        return f"the {'expression' if self.maker is None else 'constraint'} {shown(self.text)}"


def build(source: Source, stop: Stop | None = None) -> Automaton:
    """Return the automaton of a source's whole matches, without NUL. Raises InputError
    for what cannot be used, PlanError for a third party's that fails, OverloadedError
    where others end the worker, and StoppedError.
    """
    stop = stop or Stop()
    stop.check()
    if source.is_small:
        return automaton_of(source.text)
    worker = WORKERS.taken()
    try:
        with stop.ending(worker.kill):
            answer = worker.answer(source)
    finally:
        WORKERS.put_back(worker)
    stop.check()
    if isinstance(answer, Automaton):
        return answer
    if isinstance(answer, int):
        raise _death(source, answer)
    if "broken" in answer:
        name, plugin = source.origin
        raise PlanError(f"{name}: {answer['broken']}", plugin)
    raise InputError(answer["refusal"], answer["parameter"])


def _death(source: Source, code: int) -> InputError | OverloadedError:
    """Return the error of a build whose worker has ended, which tells why by its code."""
    if code == -signal.SIGPROF:
        return InputError(
            f"{source} takes longer than {SECONDS} s to prepare; make it simpler", "constraint"
        )
    if code == IDLE:
        return InputError(
            f"{source} was not prepared, as it only waits for something else, such as a network; "
            "it must compute alone",
            "constraint",
        )
    if code == -signal.SIGKILL:
        return OverloadedError(
            f"{source} was not prepared, as something ended the process that did; try again later"
        )
    return InputError(
        f"{source} needs more than {MAX_BYTES >> 30} GiB of memory or {SECONDS} s to prepare; "
        "make it simpler",
        "constraint",
    )


class _Worker:
    """A process that builds for one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", RUN, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        self._stays = self._is_killed = False

    @property
    def stays(self) -> bool:
        """Whether it can build more."""
        return self._stays and not self._is_killed

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def answer(self, source: Source) -> Automaton | int | dict[str, Any]:
        """Return an automaton, or a worker's message, or how it exited."""
        self._stays = False
        assert self._process.stdin is not None
        assert isinstance(self._process.stdout, BufferedReader)
        question = json.dumps({"text": source.text, "maker": source.maker}).encode()
        with suppress(OSError):  # it has just ended
            self._process.stdin.write(question + b"\n")
            self._process.stdin.flush()
        head = self._process.stdout.readline()
        reply: dict[str, Any] = json.loads(head) if head.endswith(b"\n") else {}
        parts = []
        if "states" in reply:
            size = reply["states"]
            parts = [np.empty(size + 1, np.bool_), np.empty((size + 3, 256), np.int32)]
        for part in parts:
            if self._process.stdout.readinto(part.data.cast("B")) < part.nbytes:
                reply = {}
        if not reply:
            return self._process.wait()
        self._stays = reply["stays"]
        return Automaton(parts[1], parts[0]) if parts else reply

    def kill(self) -> None:
        """End the process, from any thread."""
        self._is_killed = True
        self._process.kill()

    def end(self) -> None:
        """End the process, and wait for its end."""
        self.kill()
        self._process.communicate()


class _Workers:
    """The workers of this process that have nothing to do; threads may share them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Leave all to whoever began them: a fork has its own."""
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []

    def taken(self) -> _Worker:
        """Return a worker, a new one if none is idle."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive:
                    return worker
                worker.end()
        return _Worker()

    def put_back(self, worker: _Worker) -> None:
        """Keep a worker for the next build, if it can go on and is needed."""
        with self._lock:
            if worker.stays and len(self._idle) < MAX_IDLE:
                self._idle.append(worker)
                return
        worker.end()

    def end(self) -> None:
        """End all that are idle."""
        with self._lock:
            while self._idle:
                self._idle.pop().end()


WORKERS = _Workers()
atexit.register(WORKERS.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WORKERS.forget)
