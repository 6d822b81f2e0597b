"""Automata of regular expressions beside Python's re, and the expressions of an enemy."""

from __future__ import annotations

import itertools
import os
import random
import re
import resource
import signal
import threading
import time
from typing import ClassVar

import psutil
import pytest

from dise_core.constraints import building, child, host
from dise_core.constraints.automaton import Automaton
from dise_core.constraints.building import Source, Stop, StoppedError, UnfinishedError, build
from dise_core.constraints.child import QUICK, SLOW
from dise_core.constraints.constraint import Constraint
from dise_core.errors import InputError, OverloadedError


def automaton_of(expression: str) -> Automaton:
    return build(Source(expression))


TEXTS = ["".join(text) for n in range(6) for text in itertools.product("ab", repeat=n)]


def accepts(automaton: Automaton, text: str) -> bool:
    return bool(automaton.accepting[automaton.run(text.encode())])


def random_expression(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice(["a", "b", "[ab]", ".", "", "[^a]"])
    one, other = (random_expression(rng, depth - 1) for _ in range(2))
    many = ["*", "+", "?", "{2}", "{1,3}", "*?", "??", "+?", "{0,2}?"]
    forms = [f"(?:{one}|{other})", f"{one}{other}", f"({one}){rng.choice(many)}", f"({one})"]
    return rng.choice(forms)


@pytest.mark.parametrize("seed", range(60))
def test_an_automaton_accepts_the_texts_that_match_from_end_to_end(seed: int) -> None:
    rng = random.Random(seed)
    expression = random_expression(rng, 4)
    automaton = automaton_of(expression)
    assert [text for text in TEXTS if accepts(automaton, text)] == [
        text for text in TEXTS if re.fullmatch(expression, text)
    ]


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        ("(a|ab)(c|bcd)?", ["a", "ab", "ac", "abc", "abcd", "abbcd"]),
        ("[)(]\\)", ["))", "()"]),
        ("é|€", ["é", "€"]),
    ],
)
def test_no_alternative_hides_another(expression: str, texts: list[str]) -> None:
    automaton = automaton_of(expression)
    assert all(accepts(automaton, text) for text in texts)


def test_a_count_does_not_explode() -> None:
    automaton = automaton_of(r'"([^"\\\x00-\x1f\x7f-\x9f]|\\["\\/bfnrt]){0,100}"')
    assert automaton.num_states <= 12 * 100
    assert accepts(automaton, '"' + "é" * 100 + '"')
    assert not accepts(automaton, '"' + "é" * 101 + '"')


def test_from_each_live_state_there_is_an_end_and_the_dead_one_is_last() -> None:
    automaton = automaton_of("ab(c|d)*e")
    assert automaton.run(b"x") == automaton.run(b"xa") == automaton.dead == automaton.num_states
    ends = automaton.accepting.copy()
    for _ in range(automaton.num_states):
        ends = ends | ends[automaton.next].any(axis=1)
    assert ends[:-1].all()
    assert not ends[-1]
    forced = [automaton.forced[automaton.run(text)] for text in (b"", b"a", b"ab", b"abe")]
    assert forced == [True, True, False, False]


def test_no_text_holds_a_nul_byte() -> None:
    automaton = automaton_of("a.?\x00?")
    assert accepts(automaton, "ab")
    assert not accepts(automaton, "a\x00")
    with pytest.raises(InputError, match="matches no text"):
        automaton_of("a\x00")


HOSTILE = {
    "(a|b)*a(a|b){20}": "to prepare",
    r"\w{1,500}": "to prepare|20,000 states",
    "((a{1,100}){1,100}){1,100}": "to prepare",
    "a" * 100_000: "to prepare|20,000 states",
    "(a|b)*a(a|b){14}": "to prepare|20,000 states",
    "(" * 10_000 + ")" * 10_000: "cannot be used",
    "a" * 300_000: "300,000 characters, more than 200,000",
    "(a": "cannot be used",
    "(a)|b)|(c": "closes nothing",
    r"a\(b)|(c": "closes nothing",
    "[" * 50_000 + "\\": "cannot be used",
    "[a": "cannot be used",
    "a(?=b)": "without look-around",
    r"(a)\1": "without look-around or back-reference",
    "^a$": "leave out \\^ and \\$",
    "[a&&b]": "matches no text",
    "x\ud800": "cannot be used: .*utf-8",
}


@pytest.mark.parametrize("expression", HOSTILE, ids=lambda expression: expression[:20])
def test_what_cannot_be_used_is_refused_soon_and_in_little_memory(expression: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    with pytest.raises(InputError, match=HOSTILE[expression]) as error:
        automaton_of(expression)
    assert time.perf_counter() - begun < 25
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000
    assert error.value.parameter == "constraint"
    assert len(str(error.value)) < 600


def test_a_large_automaton_within_the_limits_is_built() -> None:
    assert automaton_of("(a|b)*a(a|b){12}").num_states == 8192


SLOW_EXPRESSION = "(a|b)*a(a|b){20}"


def num_children() -> int:
    """Return how many processes the host has."""
    [host] = [
        process
        for process in psutil.Process().children()
        if any("constraints.host" in part for part in process.cmdline())
    ]
    return len(host.children())


def until(number: int) -> None:
    """Wait until the host has so many children."""
    for _ in range(1000):
        if num_children() == number:
            return
        time.sleep(0.01)
    raise AssertionError(f"{num_children()} children are left")


def test_a_build_ends_with_its_child_as_soon_as_it_is_stopped() -> None:
    automaton_of("the host has begun")
    stop, ended = Stop(), []

    def build_it() -> None:
        with pytest.raises(StoppedError):
            build(Source(SLOW_EXPRESSION), SLOW, stop)
        ended.append(True)

    thread = threading.Thread(target=build_it)
    thread.start()
    until(1)
    stop.set()
    thread.join(5)
    assert ended
    until(0)


def test_a_build_that_was_stopped_before_never_begins() -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(StoppedError):
        build(Source("never begun"), SLOW, stop)


def test_a_lane_with_little_time_leaves_the_build_to_the_next() -> None:
    with pytest.raises(UnfinishedError):
        build(Source(SLOW_EXPRESSION), QUICK)


def test_what_only_came_to_no_turn_is_to_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_answer", lambda *_: child.LATE)
    with pytest.raises(OverloadedError, match="could not be prepared beside others; try again"):
        automaton_of("late")


@pytest.mark.parametrize("is_known", [True, False])
def test_a_host_that_has_ended_is_replaced_though_its_end_is_not_known_yet(
    monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    automaton_of("the first host")
    process = building.HOST._process
    assert process is not None
    process.kill()
    process.wait()
    if not is_known:
        monkeypatch.setattr(process, "poll", lambda: None)
    assert automaton_of("the second host").num_states == len("the second host") + 1
    assert building.HOST._process is not process


@pytest.mark.parametrize("kind", ["NOFILE", "NPROC"])
def test_a_host_that_may_open_or_fork_no_more_goes_on(kind: str) -> None:
    automaton_of(f"before {kind}")
    process = building.HOST._process
    assert process is not None
    until(0)
    time.sleep(0.2)  # its connection is closed behind the child
    limit = getattr(resource, f"RLIMIT_{kind}")
    before = resource.prlimit(process.pid, limit)
    allowed = psutil.Process(process.pid).num_fds() if kind == "NOFILE" else 0
    resource.prlimit(process.pid, limit, (allowed, before[1]))
    try:
        if kind == "NPROC" and os.geteuid() == 0:
            pytest.skip("no such limit binds the superuser")
        with pytest.raises(OverloadedError, match="could not be prepared beside others"):
            automaton_of(f"beyond {kind}")
    finally:
        resource.prlimit(process.pid, limit, before)
    assert automaton_of(f"behind {kind}").num_states == len(f"behind {kind}") + 1
    assert building.HOST._process is process


class Slow(Constraint):
    """Takes processor time to say what it allows."""

    in_child: ClassVar[bool] = True
    seconds: float

    def expression(self) -> str:
        begun = time.process_time()
        while time.process_time() - begun < self.seconds:
            pass
        return "[ab]"


def test_an_expression_is_made_under_the_limits_of_the_child() -> None:
    assert build(Source.of(Slow(seconds=0.01))).num_states == 2
    before = time.process_time()
    with pytest.raises(InputError, match="takes longer than 2 s to prepare"):
        build(Source.of(Slow(seconds=100)))
    assert time.process_time() - before < 1


class Waiting(Constraint):
    """Waits for what never comes."""

    in_child: ClassVar[bool] = True

    def expression(self) -> str:
        threading.Event().wait()
        return "never"


def test_a_constraint_that_only_waits_is_told_from_one_that_came_to_no_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting, killed = Source.of(Waiting()), -signal.SIGKILL
    assert building._answer(waiting, QUICK, Stop()) == child.IDLE
    assert host.reason_of(killed, child.LATE, 0.15) == child.LATE
    assert host.reason_of(killed, child.FAILED, 0.0) == child.FAILED
    assert host.reason_of(-signal.SIGXCPU, child.LATE, 2.0) == child.OUT_OF_TIME
    monkeypatch.setattr(building, "_answer", lambda *_: child.IDLE)
    with pytest.raises(InputError, match=r"was not prepared in 20 s, .* it waits for something"):
        build(waiting)
    with pytest.raises(UnfinishedError):
        build(waiting, QUICK)


def test_settings_that_are_no_json_are_refused() -> None:
    with pytest.raises(InputError, match="settings are no JSON"):
        Source.of(Slow.model_construct(seconds={1}))
