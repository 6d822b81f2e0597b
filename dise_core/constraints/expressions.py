"""Automata of regular expressions."""

import re
from itertools import accumulate

import numpy as np

from dise_core.constraints.automaton import Automaton, trimmed
from dise_core.errors import InputError, shown

MAX_CHARACTERS, MAX_STATES = 200_000, 20_000
"""What one expression may need. A state takes a kibibyte."""

END = 256
"""The byte of edges that final states have."""

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
