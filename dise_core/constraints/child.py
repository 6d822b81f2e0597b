"""What a child of the host does: makes the automaton of one constraint, within limits."""

import importlib
import json
import math
import os
import re
import socket
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from dise_core.constraints.automaton import Automaton, trimmed
from dise_core.constraints.constraint import expression_of
from dise_core.errors import InputError, error_line, shown
from dise_core.records import Record
from dise_core.scoring.faults import OURS

MAX_BYTES = 1 << 30
"""Of memory that a build may take."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of builds. seconds: of processor time that a build may take. patience:
    seconds that may pass meanwhile. nice: how far it stands back for others. slots: how
    many run at once.
    longest_line: seconds that a build may have to wait for its turn.
    """

    seconds: float
    patience: float
    nice: int
    slots: int
    longest_line: float


QUICK, SLOW = 0, 1
LANES = (Lane(0.4, 1.5, 3, 2, 4.0), Lane(2.0, 20.0, 5, 1, 20.0))
"""At first each build gets a moment, so that short ones are soon done; one that needs
longer begins anew in the second lane, where few run at a time.
"""

MAX_CHARACTERS, MAX_STATES = 200_000, 20_000
"""What one expression may need. A state takes a kibibyte."""

END = 256
"""The byte of edges that final states have."""

BUILT, REFUSED, BROKEN = b"K", b"E", b"B"
OUT_OF_TIME, LATE, IDLE, FAILED = b"T", b"W", b"I", b"M"
"""How an answer begins. Behind BUILT stands the number of states, 4 bytes, then the
automaton's arrays; behind REFUSED why, and behind BROKEN what a third party's constraint
raised, as JSON. The others stand alone, and come from the host.
"""

ANSWERED = 3
"""How a child exits that has answered, and no code that calls for an end by mistake."""

SENTINEL = r"\x00"
"""What stands before and behind the text, and never in it. The library builds automata
that may begin anywhere, which this prevents, and those stop at the first of several
alternatives that match
(`1|12` at 1), but none matches before the second sentinel.
"""

SYNTAX = (
    "expressions, as of --regex, are written as in `[0-9]+ [a-z]+`, in the syntax of Rust's regex "
    "crate, without look-around or back-reference"
)

PLAIN = re.compile(r"\\.?|\[\^?\]?(?:\\.?|[^]\\])*\]?", re.DOTALL)
"""Where parentheses are characters."""


def limit(lane: Lane) -> None:
    """Limit this process, which ends by a signal where it goes beyond."""
    import resource
    import signal

    os.nice(lane.nice)
    signal.setitimer(signal.ITIMER_PROF, lane.seconds)
    hard = math.ceil(lane.seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class BrokenError(Exception):
    """A third party's constraint fails, by the error that is told."""


def answer(connection: socket.socket, maker: str | None) -> None:
    """Read a request, its length and its text, and write the answer to it."""
    with connection.makefile("rb") as stream:
        size = int.from_bytes(stream.read(4), "big")
        text = stream.read(size).decode(errors="surrogatepass")
    try:
        automaton = automaton_of(text if maker is None else _translate(maker, text))
    except InputError as error:
        refusal = {"message": str(error), "parameter": error.parameter}
        connection.sendall(REFUSED + json.dumps(refusal).encode())
        return
    except BrokenError as error:
        connection.sendall(BROKEN + json.dumps(str(error)).encode())
        return
    head = BUILT + automaton.num_states.to_bytes(4, "big")
    for part in (head, automaton.accepting.data, automaton.table.data.cast("B")):
        connection.sendall(part)


def class_of(maker: str) -> type:
    """Import the class of a constraint by its module and its name."""
    module, _, name = maker.partition(":")
    cls: type = getattr(importlib.import_module(module), name)
    return cls


def _translate(maker: str, text: str) -> str:
    settings: Record = json.loads(text)
    try:
        return expression_of(class_of(maker)(**settings))
    except (InputError, MemoryError):
        raise
    except BaseException as error:  # Ctrl-C never comes here
        if maker.partition(".")[0] in OURS:
            raise
        raise BrokenError(f"{error_line(error):.500}") from error


def automaton_of(expression: str) -> Automaton:
    """Return the automaton of an expression's whole matches, without NUL. Raises
    InputError for what cannot be used.
    """
    from outlines_core import Index, Vocabulary

    check(expression)
    vocabulary = Vocabulary(END, {bytes([byte]): [byte] for byte in range(END)})
    first, edges = 0, dict[int, dict[int, int]]()
    try:
        index = Index(f"{SENTINEL}(?:{expression}){SENTINEL}", vocabulary)
        first, edges = index.get_initial_state(), index.get_transitions()
    except ValueError as error:
        reason = " ".join(str(error).split())[:300]
        if "Found no transitions" not in reason:
            if "building NFA" in reason:  # outlines_core says no more
                raise InputError(
                    f"the expression {shown(expression)} cannot be used as it is written; {SYNTAX}",
                    "constraint",
                ) from None
            raise InputError(
                f"the expression {shown(expression)} cannot be used: {reason}; {SYNTAX}",
                "constraint",
            ) from None
    if len(edges) <= 4 * MAX_STATES:  # before those are dropped from which no text is accepted
        automaton = _of_edges(first, edges)
        if automaton is None:
            raise InputError(
                f"the expression {shown(expression)} matches no text; it is about the whole text, "
                "so leave out ^ and $",
                "constraint",
            )
        if automaton.num_states <= MAX_STATES:
            return automaton
    raise InputError(
        f"the expression {shown(expression)} has an automaton of more than {MAX_STATES:,} states; "
        "use fewer or smaller counts such as {1,500}",
        "constraint",
    )


def check(expression: str) -> None:
    """Raise InputError for an expression that is too long, or leaves its sentinels."""
    if len(expression) > MAX_CHARACTERS:
        raise InputError(
            f"the expression {shown(expression)} has {len(expression):,} characters, more than "
            f"{MAX_CHARACTERS:,}",
            "constraint",
        )
    depths = accumulate((letter == "(") - (letter == ")") for letter in PLAIN.sub("", expression))
    if min(depths, default=0) < 0:
        raise InputError(
            f"the expression {shown(expression)} has a parenthesis that closes nothing; {SYNTAX}",
            "constraint",
        )


def _of_edges(first: int, edges: dict[int, dict[int, int]]) -> Automaton | None:
    """edges: by state, the states behind its bytes; one without edges is no key."""
    names, dead = {state: name for name, state in enumerate(edges)}, len(edges)
    table = np.full((dead + 1, END + 1), dead, np.int32)
    for row, targets in zip(table[:dead], edges.values(), strict=True):
        row[[*targets]] = [names.get(target, dead) for target in targets.values()]
    behind = table[:, 0].copy()
    table[:, 0] = dead
    is_end = table[:, END] != dead
    return trimmed(table[:, :END], is_end[behind], int(behind[names.get(first, dead)]))
