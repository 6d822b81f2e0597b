"""Run as a program: makes automata of constraints within limits, one after another.

On its standard input it gets each as a line of JSON: the text, and the class that makes
the expression of it, if one does. It answers with a line of JSON, behind which stand the
automaton's arrays if there is one. Where it comes to a limit, it ends.
"""

import importlib
import json
import os
import resource
import signal
import threading
import time
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path

from dise_core.constraints.constraint import expression_of
from dise_core.constraints.expressions import automaton_of
from dise_core.errors import InputError, error_line
from dise_core.records import Fields
from dise_core.scoring.contract import OURS

SECONDS, MAX_BYTES = 2, 1 << 30
"""Of processor time and of memory that one may take."""

MAX_KEPT = 2**28
"""Bytes that the worker may have taken, beyond which it makes way for a new one."""

NICE = 5
"""How far it stands back for others."""

IDLE = 3
"""How it exits where what it does waits for something else."""

MOMENTS, MOMENT, LEAST = 50, 0.1, 0.001
"""So many moments in a row in which this process got LEAST seconds of a processor, of
MOMENT each, and what it makes used none of them, are enough to know that it waits.
"""


class BrokenError(Exception):
    """A third party's constraint fails, by the error that is sent."""


def main() -> None:
    """Answer until standard input ends."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # what a plugin prints is no answer
        os.dup2(nowhere, number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    is_making = threading.Event()
    threading.Thread(target=watch, args=(is_making,), daemon=True).start()
    for question in questions:
        query = json.loads(question)
        if query["maker"] is not None:
            with suppress(BaseException):  # it is reported below
                class_of(query["maker"])
        is_making.set()
        limit(SECONDS, MAX_BYTES if soft == resource.RLIM_INFINITY else min(soft, MAX_BYTES))
        _answer(query, answers)
        limit(0, soft)
        is_making.clear()


def limit(seconds: float, num_bytes: int) -> None:
    """Let this process end by a signal once it has used so much more time, 0 for never,
    and give it no more memory than that.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (num_bytes, hard))


def watch(is_making: threading.Event) -> None:
    """End this process where what it makes waits for something else. A busy machine gives
    this thread no more of a processor than the other, so the two are distinguished.
    """
    num_idle = 0
    while True:
        is_making.wait()
        before = _seconds_of_others()
        time.sleep(MOMENT)
        begun = time.thread_time()
        while time.thread_time() - begun < LEAST:
            pass
        is_idle = is_making.is_set() and _seconds_of_others() - before < LEAST / 10
        num_idle = num_idle + 1 if is_idle else 0
        if num_idle == MOMENTS:
            os._exit(IDLE)


def _seconds_of_others() -> float:
    """Return the processor time of this process without this thread's."""
    return time.process_time() - time.thread_time()


def _answer(query: Fields, answers: BufferedWriter) -> None:
    head: dict[str, object] = {}
    parts: tuple[memoryview, ...] = ()
    try:
        text, maker = str(query["text"]), query["maker"]
        automaton = automaton_of(text if maker is None else _translate(str(maker), text))
        head["states"] = automaton.num_states
        parts = automaton.accepting.data, automaton.table.data
    except InputError as error:
        head |= {"refusal": str(error), "parameter": error.parameter}
    except BrokenError as error:
        head["broken"] = str(error)
    head["stays"] = peak_bytes() < MAX_KEPT
    answers.write(json.dumps(head).encode() + b"\n")
    for part in parts:
        answers.write(part.cast("B"))
    answers.flush()


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    try:
        # Linux's getrusage begins with that of the process that began this one, a model's.
        lines = Path("/proc/self/status").read_text().splitlines()
        [kib] = (line.split()[1] for line in lines if line.startswith("VmHWM"))
        return int(kib) * 1024
    except (OSError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on a Mac


def class_of(maker: str) -> type:
    """Import the class of a constraint by its module and its name."""
    module, _, name = maker.partition(":")
    cls: type = getattr(importlib.import_module(module), name)
    return cls


def _translate(maker: str, text: str) -> str:
    try:
        return expression_of(class_of(maker)(**json.loads(text)))
    except (InputError, MemoryError):
        raise
    except BaseException as error:  # Ctrl-C never comes here
        if maker.partition(".")[0] in OURS:
            raise
        raise BrokenError(f"{error_line(error):.500}") from error
