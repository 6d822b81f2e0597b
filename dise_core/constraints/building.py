"""Automata of constraints, built by children of a host, which can be ended."""

import atexit
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedReader

import numpy as np

from dise_core.constraints.automaton import Automaton
from dise_core.constraints.child import (
    BROKEN,
    BUILT,
    IDLE,
    LANES,
    LATE,
    MAX_BYTES,
    MAX_STATES,
    OUT_OF_TIME,
    REFUSED,
    SLOW,
)
from dise_core.constraints.constraint import Constraint, expression_of
from dise_core.constraints.host import HEAD, LEAST
from dise_core.errors import InputError, OverloadedError, PlanError, shown
from dise_core.scoring.faults import call, origin

MAX_REFUSAL = 2**16
"""Bytes of a refusal."""

RUN = "import sys; sys.path[:] = sys.argv[1:]; from dise_core.constraints.host import main; main()"


class UnfinishedError(Exception):
    """A build did not end in its lane's time."""


class StoppedError(Exception):
    """Nobody waits for a build any more."""


class Stop:
    """Ends a build from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._connection: socket.socket | None = None

    def set(self) -> None:
        """End the build, now or as soon as it begins."""
        with self._lock:
            self._is_set = True
            if self._connection is not None:
                with suppress(OSError):  # it has ended
                    self._connection.shutdown(socket.SHUT_RDWR)

    def check(self) -> None:
        """Raise StoppedError once it is set."""
        if self._is_set:
            raise StoppedError

    def ends(self, connection: socket.socket) -> None:
        """Shut that connection down, too. Raises StoppedError if it is set."""
        with self._lock:
            self.check()
            self._connection = connection


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
    def key(self) -> bytes:
        """A short name that differs for every source."""
        text = f"{self.maker}\0{self.text}".encode(errors="surrogatepass")
        return hashlib.sha256(text).digest()

    def __str__(self) -> str:
        return f"the {'expression' if self.maker is None else 'constraint'} {shown(self.text)}"


def build(source: Source, lane: int = SLOW, stop: Stop | None = None) -> Automaton:
    """Return the automaton of a source's whole matches, without NUL. Raises InputError
    for what cannot be used, PlanError for a third party's that fails, UnfinishedError
    where a lane before the last had too little time for it, OverloadedError where the
    last one had, and StoppedError.
    """
    answer = _answer(source, lane, stop or Stop())
    if isinstance(answer, Automaton):
        return answer
    kind, seconds = answer[:1], LANES[SLOW].seconds
    if kind == REFUSED:
        raise InputError(**json.loads(answer[1:]))
    if kind == BROKEN:
        name, plugin = source.origin
        raise PlanError(f"{name}: {json.loads(answer[1:])}", plugin)
    if kind in (OUT_OF_TIME, LATE, IDLE) and lane != SLOW:
        raise UnfinishedError
    if kind == OUT_OF_TIME:
        raise InputError(
            f"{source} takes longer than {seconds:g} s to prepare; make it simpler", "constraint"
        )
    if kind == IDLE:
        raise InputError(
            f"{source} was not prepared in {LANES[SLOW].patience:g} s, of which it used less than "
            f"{LEAST:g} s of a processor: it waits for something else, such as a network; it must "
            "compute alone",
            "constraint",
        )
    if kind == LATE or not kind:
        raise OverloadedError(f"{source} could not be prepared beside others; try again later")
    raise InputError(
        f"{source} needs more than {MAX_BYTES >> 30} GiB of memory or {seconds:g} s to prepare; "
        "make it simpler",
        "constraint",
    )


def _answer(source: Source, lane: int, stop: Stop) -> Automaton | bytes:
    """Return what a child answers: an automaton, or how it failed, and why."""
    ours, theirs = socket.socketpair()
    text = source.text.encode(errors="surrogatepass")
    head = json.dumps({"lane": lane, "maker": source.maker}).encode().ljust(HEAD)
    answer: Automaton | bytes = b""
    with ours, theirs:
        stop.ends(ours)
        ours.settimeout(LANES[lane].patience + 5)
        ours.send(head)
        HOST.send(theirs)
        theirs.close()
        with suppress(ConnectionError):  # it may end before it has read all
            ours.sendall(len(text).to_bytes(4, "big") + text)
        with suppress(ConnectionError, TimeoutError), ours.makefile("rb") as stream:
            kind = stream.read(1)
            answer = _automaton(stream) if kind == BUILT else kind + stream.read(MAX_REFUSAL)
    stop.check()
    return answer


def _automaton(stream: BufferedReader) -> Automaton | bytes:
    """Read an automaton, where all of it comes; else return nothing."""
    size = int.from_bytes(stream.read(4), "big")
    accepting = np.empty(min(size, MAX_STATES) + 1, np.bool_)
    table = np.empty((len(accepting) + 2, 256), np.int32)
    for part in (accepting.data.cast("B"), table.data.cast("B")):
        if stream.readinto(part) < len(part):
            return b""
    return Automaton(table, accepting)


class _Host:
    """The process that forks, from the first build to the end of this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Leave the process, if any, to whoever began it: a fork has one of its own."""
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def send(self, connection: socket.socket) -> None:
        """Hand over a connection; where the host has ended, to another one."""
        with self._lock:
            if self._control is None or self._process is None or self._process.poll() is not None:
                self._begin()
            try:
                self._hand_over(connection)
            except OSError:  # it has just ended
                self._begin()
                self._hand_over(connection)

    def _hand_over(self, connection: socket.socket) -> None:
        assert self._control is not None
        socket.send_fds(self._control, [b"."], [connection.fileno()])

    def begin(self) -> None:
        """Let the process begin, so that the first build need not wait for it."""
        with self._lock:
            if self._process is None:
                self._begin()

    def _begin(self) -> None:
        self.end()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", RUN, *sys.path],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )

    def end(self) -> None:
        """End the process, and with it all builds."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.wait()
        self._control = self._process = None


HOST = _Host()
atexit.register(HOST.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=HOST.forget)
