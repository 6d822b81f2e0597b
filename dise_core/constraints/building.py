"""Automata of regular expressions, built in child processes, which can be stopped."""

import re
import subprocess
import sys
import threading
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import numpy as np
import outlines_core

from dise_core.constraints import child
from dise_core.constraints.automaton import Automaton, trimmed
from dise_core.errors import InputError, OverloadedError, shown

MAX_CHARACTERS, MAX_STATES, MAX_BYTES, MAX_SECONDS = 200_000, 20_000, 1 << 30, 2
"""What one expression may need. A state takes a kibibyte."""

NUM_KEPT = 16

SENTINEL = r"\x00"
"""What stands before and behind the text, and never in it. The library builds automata that may
begin anywhere, which this prevents, and those stop at the first of several alternatives that match
(`1|12` at 1), but none matches before the second sentinel.
"""

SYNTAX = (
    "expressions are in the syntax of Rust's regex crate, without look-around or back-reference"
)

NOTHING = "matches no text; it is about the whole text, so leave out ^ and $"

PLAIN = re.compile(r"\\.?|\[\^?\]?(?:\\.?|[^]\\])*\]?", re.DOTALL)
"""Where parentheses are characters."""

_builders = threading.BoundedSemaphore(2)


@lru_cache(maxsize=NUM_KEPT)
def automaton_of(expression: str) -> Automaton:
    """Return the automaton of an expression's whole matches, without NUL. Raises InputError for
    what cannot be used, OverloadedError if others are being built meanwhile.
    """
    if len(expression) > MAX_CHARACTERS:
        problem = f"has {len(expression):,} characters, more than {MAX_CHARACTERS:,}"
        raise _refused(expression, problem)
    depths = accumulate((letter == "(") - (letter == ")") for letter in PLAIN.sub("", expression))
    if min(depths, default=0) < 0:  # its end would lie outside of the sentinels
        raise _refused(expression, f"has a parenthesis that closes nothing; {SYNTAX}")
    if not _builders.acquire(timeout=MAX_SECONDS):
        raise OverloadedError("other constraints are being prepared; try again later")
    try:
        automaton = _read(expression, _output(expression))
    finally:
        _builders.release()
    if automaton is None:
        raise _refused(expression, NOTHING)
    return automaton


def _output(expression: str) -> bytes:
    folder = str(Path(outlines_core.__file__).parents[1])
    command = [sys.executable, "-I", "-S", child.__file__, folder, str(MAX_BYTES), str(MAX_SECONDS)]
    text = f"{SENTINEL}(?:{expression}){SENTINEL}".encode(errors="surrogatepass")
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, check=False, timeout=MAX_SECONDS
        )
    except subprocess.TimeoutExpired:
        problem = f"takes longer than {MAX_SECONDS} s to prepare; make it simpler"
        raise _refused(expression, problem) from None
    if done.returncode == 0:
        return done.stdout
    reason = done.stdout.decode(errors="replace").strip() if done.returncode == 1 else ""
    problem = f"cannot be used: {reason}; {SYNTAX}"
    if "Found no transitions" in reason:
        problem = NOTHING
    elif not reason:
        needed = f"{MAX_BYTES >> 30} GiB of memory or {MAX_SECONDS} s"
        problem = f"needs more than {needed} to prepare; make it simpler"
    raise _refused(expression, problem)


def _read(expression: str, output: bytes) -> Automaton | None:
    first, dead = np.frombuffer(output, np.uint32, 2).tolist()
    automaton = None
    if dead <= 4 * MAX_STATES:  # before those are dropped from which no text is accepted
        sources, keys, targets = np.frombuffer(output, np.uint32, offset=8).reshape(3, -1)
        table = np.full((dead + 1, child.END + 1), dead, np.int32)
        table[sources, keys] = targets
        behind = table[:, 0].copy()
        table[:, 0] = dead
        is_end = table[:, child.END] != dead
        automaton = trimmed(table[:, : child.END], is_end[behind], int(behind[first]))
        if automaton is None or automaton.num_states <= MAX_STATES:
            return automaton
    problem = f"has an automaton of more than {MAX_STATES:,} states"
    raise _refused(expression, f"{problem}; use fewer or smaller counts such as {{1,500}}")


def _refused(expression: str, problem: str) -> InputError:
    return InputError(f"the expression {shown(expression)} {problem}", "constraint")
