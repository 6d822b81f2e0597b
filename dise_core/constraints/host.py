"""Run as a program: the host of those who build. It forks a child for each build, and
ends one at its limits, and as soon as nobody waits for it any more. So a build begins in
milliseconds.

Its standard input is a socket over which it gets a connection for each build. On that
come HEAD bytes of JSON, the lane and the class that makes the expression, and then what
the child reads.
"""

import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

from dise_core.constraints.child import (
    ANSWERED,
    FAILED,
    IDLE,
    LANES,
    LATE,
    OUT_OF_TIME,
    Lane,
    answer,
    class_of,
    limit,
)

HEAD = 512

OF_TIME = {signal.SIGPROF, signal.SIGXCPU}
"""What ends a child that has used up its processor time."""

LEAST = 0.1
"""Seconds of processor time that a child gets however busy the machine is, and one that
waits for something else does not use.
"""


@dataclass(slots=True)
class _Child:
    connection: socket.socket
    until: float
    killed: bytes = b""
    """Why it was ended, if it was."""


class Host:
    """One thread that waits for requests, ending children and leaving clients."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, _Child] = {}
        self._woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def run(self) -> None:
        """Serve until whoever sends requests has gone."""
        while True:
            ready = {number for number, _ in self._poll.poll(self._patience())}
            if self._woken in ready:
                os.read(self._woken, 4096)
            if self._control.fileno() in ready and not self._take():
                break
            now = time.monotonic()
            for pid, child in self._children.items():
                if child.connection.fileno() in ready:  # nobody waits any more
                    self._kill(pid, child, FAILED)
                elif child.until <= now:
                    self._kill(pid, child, LATE)
            self._reap()
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)

    def _patience(self) -> int | None:
        """Return the milliseconds until the next child is late."""
        living = (child.until for child in self._children.values() if not child.killed)
        until = min(living, default=None)
        return None if until is None else max(0, int((until - time.monotonic()) * 1000) + 1)

    def _take(self) -> bool:
        """Start a child for the next request; False if none will come."""
        data, numbers, _, _ = socket.recv_fds(self._control, 1, 1)
        if not data:
            return False
        if not numbers:  # too many are open: who waits at the other end finds it closed
            return True
        connection = socket.socket(fileno=numbers[0])
        head = json.loads(connection.recv(HEAD, socket.MSG_WAITALL))
        lane = LANES[head["lane"]]
        if head["maker"] is not None:
            with suppress(BaseException):  # the child will say so
                class_of(head["maker"])
        try:
            pid = os.fork()
        except OSError:
            connection.close()
            return True
        if pid == 0:
            self._be_a_child(connection, lane, head["maker"])
        self._children[pid] = _Child(connection, time.monotonic() + lane.patience)
        self._poll.register(connection, 0)  # POLLHUP alone
        return True

    def _be_a_child(self, connection: socket.socket, lane: Lane, maker: str | None) -> None:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # Another's connection held here would not end with its child.
            for child in self._children.values():
                child.connection.close()
            self._control.close()
            limit(lane)
            answer(connection, maker)
            status = ANSWERED
        finally:
            os._exit(status)

    def _kill(self, pid: int, child: _Child, reason: bytes) -> None:
        if not child.killed:
            os.kill(pid, signal.SIGKILL)
            self._poll.unregister(child.connection)
            child.killed = reason

    def _reap(self) -> None:
        """Tell of each child that has ended without an answer why it did."""
        for pid in list(self._children):
            ended, status, used = os.wait4(pid, os.WNOHANG)
            if not ended:
                continue
            child = self._children.pop(pid)
            if not child.killed:
                self._poll.unregister(child.connection)
            code = os.waitstatus_to_exitcode(status)
            reason = reason_of(code, child.killed, used.ru_utime + used.ru_stime)
            with suppress(OSError):
                if code != ANSWERED:
                    child.connection.send(reason, socket.MSG_DONTWAIT)
            child.connection.close()


def reason_of(code: int, killed: bytes, seconds: float) -> bytes:
    """Return why a child ended without an answer. killed: why the host ended it, if it
    did; seconds: of processor time that it used.
    """
    if -code in OF_TIME:
        return OUT_OF_TIME
    if killed == LATE and seconds < LEAST:
        return IDLE
    return killed or FAILED


def main() -> None:
    """Serve the socket that is standard input."""
    control = socket.socket(fileno=os.dup(0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that serves
    Host(control).run()
    sys.exit(0)
