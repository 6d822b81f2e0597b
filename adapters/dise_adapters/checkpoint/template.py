"""A checkpoint's chat template, rendered in a process of its own.

A template is a program that somebody else wrote: in here it could take all memory, or compute for
ever where nothing can stop it. There it ends no more than its own conversation.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import IO

from dise_adapters.checkpoint import rendering
from dise_adapters.checkpoint.files import one_line
from dise_core.errors import InputError, ModelError
from dise_core.records import Fields, Record

CPU_SECONDS = 1.0
"""What one conversation may compute for."""

WALL_SECONDS = 10.0
"""How long an answer may take where the machine is busy; its computing has a limit of its own."""

START_SECONDS = 60.0

MOST_REMEMBERED = 2**15
"""The longest request, in bytes, whose answer is remembered."""


def render(template: str, variables: Fields) -> str:
    """Return the text that a template makes of its variables, which are JSON.

    Raises InputError where it raises an error, or takes more time or memory than a template may.
    """
    try:
        request = json.dumps({"template": template, "variables": variables}).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the conversation is not JSON: {error}", "messages") from error
    # One that tells the time is made anew.
    may_repeat = len(request) <= MOST_REMEMBERED and "strftime_now" not in template
    return _remembered(request) if may_repeat else _rendered(request)


@lru_cache(256)
def _remembered(request: bytes) -> str:
    """Return what `_rendered` does; a prompt with many candidates asks for it again and again."""
    return _rendered(request)


def _rendered(request: bytes) -> str:
    answer = _PROCESS.ask(request)
    if "text" not in answer:
        problem = one_line(answer["problem"])
        raise InputError(
            f"the model's chat template refuses the conversation: {problem}", "messages"
        )
    return str(answer["text"])


class _Process:
    """The process that renders, started at the first request and again after each that ended it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: subprocess.Popen[bytes] | None = None

    def ask(self, request: bytes) -> Record:
        """Return the answer to a request; one at a time, for any thread."""
        with self._lock:
            try:
                running = self._sent(request)
                try:
                    answer: Record = json.loads(_receive(running, WALL_SECONDS))
                except (EOFError, TimeoutError):
                    self._end()
                    return {"problem": _death(running.returncode)}
            except BaseException:  # or the next request would be answered with this answer
                self._end()
                raise
            return answer

    def _sent(self, request: bytes) -> subprocess.Popen[bytes]:
        """Send the request, and return the process that has it."""
        running = self._running or self._start()
        try:
            self._send(running, request)
        except OSError:  # it had ended before
            self._end()
            running = self._start()
            self._send(running, request)
        return running

    def _send(self, running: subprocess.Popen[bytes], request: bytes) -> None:
        sink = _pipe(running.stdin)
        sink.write(rendering.LENGTH.pack(len(request)) + request)
        sink.flush()

    def _start(self) -> subprocess.Popen[bytes]:
        import jinja2
        import markupsafe

        folders = {str(Path(str(each.__file__)).parents[1]) for each in (jinja2, markupsafe)}
        try:
            self._running = subprocess.Popen(
                [sys.executable, "-I", "-S", rendering.__file__, str(CPU_SECONDS), *folders],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is not for it
            )
            _receive(self._running, START_SECONDS)
        except (OSError, EOFError, TimeoutError) as error:
            self._end()
            raise ModelError(f"no process to render chat templates: {error!r}") from error
        return self._running

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.kill()
            running.wait()
            for pipe in (running.stdin, running.stdout):
                with suppress(OSError):  # what was not sent yet
                    _pipe(pipe).close()


def _receive(running: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Return one answer. Raises EOFError where the process has ended, TimeoutError after so many
    seconds.
    """
    until, source, found = monotonic() + seconds, _pipe(running.stdout).fileno(), bytearray()
    size = rendering.LENGTH.size
    poll = select.poll()
    poll.register(source, select.POLLIN)
    while len(found) < size:
        if not poll.poll(max(0.0, until - monotonic()) * 1000):
            raise TimeoutError
        if not (part := os.read(source, 2**20)):
            raise EOFError
        found += part
        if len(found) >= rendering.LENGTH.size:
            size = rendering.LENGTH.size + rendering.LENGTH.unpack_from(found)[0]
    return bytes(found[rendering.LENGTH.size :])


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _death(status: int) -> str:
    """Return why the process has ended."""
    if status == -signal.SIGPROF:
        return f"it computes for more than {CPU_SECONDS:g} s"
    if status == -signal.SIGKILL:
        return f"it takes longer than {WALL_SECONDS:g} s, or more memory than there is"
    return f"it ends its process (status {status})"


_PROCESS = _Process()
atexit.register(_PROCESS.close)
os.register_at_fork(after_in_child=_PROCESS.__init__)  # type: ignore[misc]
