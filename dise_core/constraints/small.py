"""Which expressions have an automaton so small that it is built where it is asked for.

The library that builds them can neither be bounded nor stopped. So the characters of an
expression are run through a program of it first, as that library does, and what that
takes is counted. What is not parsed here, such as a flag, is not small.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

MAX_TEXT, MAX_PROGRAM = 4000, 4000
"""Characters of a small expression, and steps of its program."""

MAX_STEPS, MAX_EDGES = 20_000, 60_000
"""Steps that are taken here, and edges between bytes that are found: about ten
milliseconds here and there.
"""

WIDE, APART, LETTER, STATE = 600, 200, 40, 20
"""The edges, in bytes, of all characters beyond ASCII but those that are named, of one of
those beside them and alone, and those that a state counts for.
"""

ESCAPED = r"\\x[0-9a-fA-F]{2}|\\[nrtfv]|\\[^\w<>]"
TOKEN = re.compile(
    rf"(?P<open>\((?:\?:|(?!\?)))|(?P<close>\))|(?P<either>\|)"
    rf"|(?P<count>(?:[*+?]|\{{(?P<least>\d{{1,4}})(?P<range>,(?P<most>\d{{0,4}}))?\}})\??)"
    rf"|(?P<atom>{ESCAPED}|\[\^?(?:{ESCAPED}|[^][\\&~|-]|-(?!-))+\]|[^][\\(){{}}|*+?^$])",
    re.DOTALL,
)

Step = str | tuple[int, ...]
"""A set of characters, as it is written, or how far the next steps are, best first."""

Program = list[Step]

CharGroup = frozenset[str]
"""The sets that hold a character."""

NUL, END, LAST = r"\x00", "", "\U0010ffff"
"""The sentinel, the last step, and the last character."""


def is_small(expression: str) -> bool:
    """Return whether an automaton is built in milliseconds. Only what is certain is."""
    return len(expression) <= MAX_TEXT and _is_small(expression)


@lru_cache(256)
def _is_small(expression: str) -> bool:
    program = _program(expression)
    if program is None:
        return False
    program = [NUL, *program, NUL, END]
    try:
        edges = _edges({step for step in program if isinstance(step, str)} - {END})
    except re.error:
        return False
    groups_of: dict[Step, list[CharGroup]] = {}
    for group in edges:
        for text in group:
            groups_of.setdefault(text, []).append(group)
    # From 0 it looks for the first sentinel anywhere, as the library does, too.
    left: list[tuple[int, ...]] = [(0,), (1,)]
    reached, num_steps, num_edges = {*left}, 0, 0
    while left and num_steps <= MAX_STEPS and num_edges <= MAX_EDGES:
        before = left.pop()
        threads = _behind(program, before)
        targets: dict[CharGroup, tuple[int, ...]] = {}
        for place in threads:
            for group in groups_of.get(program[place], ()):
                targets[group] = (*targets.get(group, ()), place + 1)
                num_edges += edges[group]
        for places in targets.values():
            behind = (*places, 0) if 0 in before else places
            if behind not in reached:
                reached.add(behind)
                left.append(behind)
        num_steps += len(threads) + sum(map(len, targets.values()))
        num_edges += STATE
    return not left


def _program(expression: str) -> Program | None:
    """Return what is run, None for what is not parsed here or is too long."""
    groups: list[tuple[Program | None, Program]] = []
    first, program, part = None, Program(), Program()
    at = 0
    while at < len(expression):
        token = TOKEN.match(expression, at)
        if token is None or len(program) > MAX_PROGRAM:
            return None
        at = token.end()
        match token.lastgroup:
            case "open":
                groups.append((first, program + part))
                first, program, part = None, [], []
            case "close" if groups:
                part = _either(first, program + part)
                first, program = groups.pop()
            case "either":
                first, program, part = _either(first, program + part), [], []
            case "count":
                lowest, highest = _counts(token)
                if len(part) * max(lowest, highest or 1) > MAX_PROGRAM:
                    return None
                part = _repeated(part, lowest, highest, is_lazy=token["count"][1:].endswith("?"))
            case "atom":
                program += part
                part = [token["atom"]]
            case _:
                return None
    return None if groups else _either(first, program + part)


def _counts(token: re.Match[str]) -> tuple[int, int | None]:
    if token["least"] is None:
        return int(token["count"][0] == "+"), 1 if token["count"][0] == "?" else None
    lowest, highest = int(token["least"]), token["most"]
    return lowest, lowest if token["range"] is None else int(highest) if highest else None


def _either(one: Program | None, other: Program) -> Program:
    if one is None:
        return other
    return [(1, len(one) + 2), *one, (len(other) + 1,), *other]


def _repeated(part: Program, lowest: int, highest: int | None, is_lazy: bool) -> Program:
    def fork(size: int) -> Step:
        return (size, 1) if is_lazy else (1, size)

    size = len(part) + 1
    if highest is None:
        return part * lowest + [fork(size + 1), *part, (-size,)]
    optional = ([fork((highest - done) * size), *part] for done in range(lowest, highest))
    return part * lowest + [step for option in optional for step in option]


def _behind(program: Program, places: Iterable[int]) -> list[int]:
    """Return all places that a run at these is at, best first."""
    states: dict[int, None] = {}
    left = [*places][::-1]
    while left:
        place = left.pop()
        if place not in states:
            states[place] = None
            step = program[place]
            if isinstance(step, tuple):
                left += [place + distance for distance in step[::-1]]
    return list(states)


def _edges(sets: set[str]) -> Counter[CharGroup]:
    """Return how many edges between bytes the characters take that the same sets hold."""
    characters = {character for text in sets for character in text if character > "\x7f"}
    characters |= {
        chr(int(code, 16)) for text in sets for code in re.findall(r"\\x([89a-fA-F].)", text)
    }
    beside = {
        chr(min(ord(character) + step, ord(LAST))) for character in characters for step in (-1, 1)
    }
    holds = {text: re.compile(text).match for text in sets}
    edges = Counter[CharGroup]()
    for character in {*map(chr, range(128)), *characters, *beside, LAST}:
        group = frozenset(text for text in sets if holds[text](character))
        wide = WIDE if character == LAST else APART
        edges[group] += 1 if character < "\x80" else LETTER if group == {character} else wide
    del edges[frozenset()]
    return edges
