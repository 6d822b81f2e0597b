"""The command's end: everything is closed, and nothing is taken apart."""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def prompt() -> Iterator[None]:
    """Let the process end, with the code of what is raised inside, once its threads have
    ended and the exit handlers that are registered inside have run. To take apart what
    was imported takes as long as writing a short answer, and triton would report what
    garbage collection has spared.
    """
    code = 1

    def end() -> None:
        for stream in (sys.stdout, sys.stderr):
            if not stream.closed:
                stream.flush()
        os._exit(code)

    atexit.register(end)
    try:
        yield
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        raise
