"""Automata of regular expressions beside Python's re, and the expressions of an enemy."""

from __future__ import annotations

import itertools
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from dise_core.constraints import building, small
from dise_core.constraints.automaton import Automaton
from dise_core.constraints.building import Source, Stop, StoppedError, build
from dise_core.constraints.constraint import Constraint
from dise_core.constraints.small import is_small
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
    with pytest.raises(InputError, match=HOSTILE[expression]) as error:
        automaton_of(expression)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000
    assert error.value.parameter == "constraint"
    assert len(str(error.value)) < 600


def test_a_large_automaton_within_the_limits_is_built() -> None:
    assert automaton_of("(a|b)*a(a|b){12}").num_states == 8192


SLOW = "(a|b)*a(a|b){20}"


def num_edges(automaton: Automaton) -> int:
    return int((automaton.next != automaton.dead).sum())


def workers() -> list[psutil.Process]:
    """Return this process's workers, under `alone` those of the test."""
    children = psutil.Process().children()
    return [child for child in children if building.RUN in child.cmdline()]


def seconds_of_ended_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture
def alone(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[building._Workers]:
    """Yield the workers of this test, of which there is none at first."""
    monkeypatch.setattr(building, "RUN", f"{building.RUN}  # of {request.node.name}")
    monkeypatch.setattr(building, "WORKERS", building._Workers())
    yield building.WORKERS
    building.WORKERS.end()
    assert not workers()


@pytest.mark.usefixtures("alone")
def test_what_is_small_needs_no_worker_and_what_is_not_gets_one_that_is_kept() -> None:
    automaton_of("[0-9]{1,2}")
    assert not workers()
    automaton_of(r"\w")
    [worker] = workers()
    automaton_of(r"\w+")
    assert workers() == [worker]


@pytest.mark.parametrize(
    ("expression", "is_it"),
    [
        ("", True),
        ("[0-9]{1,2}", True),
        ("(?:é|ü{2,}|[^x-z\\]]?)*?", True),
        (r"[a\-\x00-\x1f]{0,0}\.", True),
        (r'\{"a":\ "(?:[^"\\\x00-\x1f\x7f-\x9f]|\\["\\/bfnrt]){0,}"\}', True),
        ("(?:.*a){8}", False),
        ("(?:.*a){20}", False),
        ("(a|b)*a(a|b){4}", True),
        (SLOW, False),
        ("((a{1,100}){1,100}){1,100}", False),
        ("(a|b|ab|ba|aab|bba){30}", False),
        ("a" * 4001, False),
        ("[^a]{17}", False),
        *((text, False) for text in (r"\w", r"\p{L}", r"a\b", "(?i)a", "[a&&b]", "[z-a]", "[[a]]")),
        *((text, False) for text in ("(a", "a)", "^a", "a$", "a{,2}", "a{2", r"a\<b")),
    ],
)
def test_only_what_is_certain_to_be_small_is_built_without_a_worker(
    expression: str, is_it: bool
) -> None:
    assert is_small(expression) == is_it
    if is_it:
        assert num_edges(automaton_of(expression)) <= small.MAX_EDGES


@pytest.mark.usefixtures("alone")
def test_a_build_ends_with_its_worker_as_soon_as_it_is_stopped() -> None:
    stop, ended, before = Stop(), [], seconds_of_ended_children()

    def build_it() -> None:
        with pytest.raises(StoppedError):
            build(Source(SLOW), stop)
        ended.append(True)

    thread = threading.Thread(target=build_it)
    thread.start()
    while sum(worker.cpu_times().user for worker in workers()) < 0.1:
        time.sleep(0.01)
    stop.set()
    thread.join()
    assert ended
    assert not workers()
    assert seconds_of_ended_children() - before < 2


@pytest.mark.parametrize("expression", ["[0-9]", SLOW])
def test_a_build_that_was_stopped_before_never_begins(expression: str) -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(StoppedError):
        build(Source(expression), stop)


def test_a_worker_that_was_stopped_too_late_builds_nothing_more(alone: building._Workers) -> None:
    automaton_of(r"\w")
    worker = alone.taken()
    worker.kill()
    alone.put_back(worker)
    assert automaton_of(r"\w").num_states > 100


def test_a_worker_that_ended_while_it_was_idle_is_replaced(alone: building._Workers) -> None:
    automaton_of(r"\w")
    [worker] = workers()
    os.kill(worker.pid, signal.SIGKILL)
    alone._idle[0]._process.wait()
    assert automaton_of(r"\w").num_states > 100


def test_a_build_whose_worker_is_ended_by_others_is_to_be_tried_again(
    alone: building._Workers,
) -> None:
    worker = alone.taken()
    os.kill(worker._process.pid, signal.SIGKILL)
    worker._stays = True
    alone.put_back(worker)
    worker._process.poll = lambda: None  # type: ignore[method-assign]
    with pytest.raises(OverloadedError, match="something ended the process that did; try again"):
        automaton_of(r"\w")


def test_workers_end_with_the_process_that_asks_though_it_is_killed() -> None:
    program = (
        "import os, signal, time; from dise_core.constraints import building as b;"
        "b.build(b.Source(chr(92) + 'w')); print(b.WORKERS._idle[0]._process.pid, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    run = subprocess.run([sys.executable, "-c", program], check=False, stdout=-1, text=True)
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(run.stdout)).wait(60)


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from dise_core.constraints.building import Source, build\n"
        "print(build(Source(r'\\d')).num_states)\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert run.stdout == "26\n"


class Slow(Constraint):
    """Takes processor time to say what it allows."""

    in_child: ClassVar[bool] = True
    seconds: float

    def expression(self) -> str:
        begun = time.process_time()
        while time.process_time() - begun < self.seconds:
            pass
        return "[ab]"


def test_an_expression_is_made_under_the_limits_of_the_worker() -> None:
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


def test_a_constraint_that_only_waits_is_told_so() -> None:
    with pytest.raises(InputError, match=r"only waits for something else, .* must compute alone"):
        build(Source.of(Waiting()))


def test_settings_that_are_no_json_are_refused() -> None:
    with pytest.raises(InputError, match="settings are no JSON"):
        Source.of(Slow.model_construct(seconds={1}))
