"""Ctrl-C ends the command, always by the first one and with the exit code 130."""

import _thread
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, current_thread, main_thread

EXIT_CODE = 128 + signal.SIGINT

SECONDS = 1.0
"""How long a run may take to end in order."""

SHOW_CURSOR = b"\r\x1b[K\x1b[?25h"
"""What goes to a terminal where a line of progress may stand on it, without a cursor."""


_ending = Event()


@contextmanager
def handled() -> Iterator[None]:
    """End the process at Ctrl-C: at once, or in order after `in_order`."""
    end_at_once()
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _end_in_order:
            signal.signal(signal.SIGINT, _end_now)  # nothing is open any more
        if _ending.is_set():  # whatever the interrupt has become on its way
            sys.exit(EXIT_CODE)


def end_at_once() -> None:
    """End the process at once at Ctrl-C, unless the program handles or ignores it. While
    libraries are imported nothing is to be tidied up, and foreign code would swallow an
    exception.
    """
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default and current_thread() is main_thread():
        signal.signal(signal.SIGINT, _end_now)


def in_order() -> None:
    """From now on raise KeyboardInterrupt at Ctrl-C, so that what is open is closed."""
    if signal.getsignal(signal.SIGINT) is _end_now:
        signal.signal(signal.SIGINT, _end_in_order)


def is_ending() -> bool:
    """Whether the process is ending in order: what is raised may come of Ctrl-C."""
    return _ending.is_set()


def _end_in_order(*_: object) -> None:
    signal.signal(signal.SIGINT, _end_now)
    _ending.set()
    _thread.start_new_thread(_end_late, ())
    raise KeyboardInterrupt


def _end_late() -> None:
    """End the process if it still runs: the exception may have been swallowed."""
    time.sleep(SECONDS)
    _end_now()


def _end_now(*_: object) -> None:
    if os.isatty(2):
        os.write(2, SHOW_CURSOR)
    os._exit(EXIT_CODE)
