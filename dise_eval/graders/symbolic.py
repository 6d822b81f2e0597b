"""Whether math-verify finds LaTeX answers equal, in a process that may be killed."""

from __future__ import annotations

import atexit
import multiprocessing
import resource
import signal
from functools import cache
from multiprocessing.pool import Pool

MAX_LENGTH = 300

SECONDS = 5.0

START_SECONDS = 60.0

MAX_BYTES = 4 * 2**30


def are_equal(answer: str, truth: str) -> bool:
    """Return whether both are equal; False if one is too long or unreadable, or late."""
    if max(len(answer), len(truth)) > MAX_LENGTH:
        return False
    try:
        return _worker().apply_async(_verified, (answer, truth)).get(SECONDS)
    except BaseException as error:  # a late answer must not become that to the next pair
        _worker().terminate()
        _worker.cache_clear()
        if isinstance(error, multiprocessing.TimeoutError):
            return False
        raise


@cache
def _worker() -> Pool:
    """Return the process that compares, once it has imported what it needs."""
    pool = multiprocessing.get_context("spawn").Pool(1, _limit)
    atexit.register(pool.terminate)
    pool.apply_async(_verified, ("1", "1")).get(START_SECONDS)
    return pool


def _limit() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks ends at Ctrl-C
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))


def _verified(answer: str, truth: str) -> bool:
    """Return math-verify's verdict without its own time limit, which needs a process's
    main thread and cannot end a long multiplication.
    """
    from math_verify import parse, verify

    try:
        parts = (parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (truth, answer))
        return bool(verify(*parts, timeout_seconds=None))
    except Exception:  # sympy raises of many kinds on what it cannot read
        return False
