"""Plugins that raise, answer wrongly or never let go: their own request fails, with an error that
names them, and all others get their answers.
"""

from __future__ import annotations

import asyncio
import math
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core import (
    LLM,
    AsyncLLM,
    Budget,
    ClosedError,
    DiseError,
    Evaluation,
    Generation,
    LengthController,
    ModelError,
    Plan,
    PlanError,
    PluginError,
    Read,
    Reading,
    Reviser,
    Revision,
    SamplingParams,
    Score,
    Scorer,
    ScoringParams,
    Selector,
    TokenLogProbs,
    UnmaskingPolicy,
)
from dise_core.engine import AsyncEngine, Engine
from dise_core.params.engine import EngineConfig
from dise_core.testing import ToyPredictor, check_mask_predictor
from dise_core.testing.toy_model import MASK, VOCAB_SIZE
from tests.app.serving import serving
from tests.guests import with_guests
from tests.hostile.bounds import bounded, cases

LEAVING: list[type[BaseException]] = [
    SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, MemoryError,
]  # fmt: skip


class UnspeakableError(Exception):
    """Fails when it is told."""

    def __str__(self) -> str:
        raise SystemExit("not even that")


def asks() -> list[Read]:
    return [Read(np.array([1, 2, 3]), np.array([1]), _targets([2]))]


def _targets(ids: list[int]) -> Any:
    return TokenLogProbs(np.array(ids, np.int64))


def good() -> Plan[str]:
    yield asks()
    return "done"


def at_the_start(error: BaseException) -> Plan[str]:
    raise error
    yield []


def in_the_middle(error: BaseException) -> Plan[str]:
    yield asks()
    raise error


def at_close(error: BaseException) -> Plan[str]:
    try:
        yield [*asks(), "not a read"]  # type: ignore[list-item]
    finally:
        raise error
    return ""


def never_closing(error: BaseException) -> Plan[str]:
    of_nothing = Read(np.array([], np.int64), np.array([], np.int64), _targets([]))
    while True:
        try:
            yield [of_nothing]
        except BaseException:
            continue


PLANS = [at_the_start, in_the_middle, at_close]


@pytest.mark.parametrize("error", [*LEAVING, UnspeakableError])
@pytest.mark.parametrize("bad", PLANS)
def test_a_plan_that_leaves_ends_its_own_request(
    bad: Callable[[BaseException], Plan[str]], error: type[BaseException]
) -> None:
    engine = AsyncEngine(lambda: Engine({"target": ToyPredictor()}, EngineConfig()))
    before, failing, after = (engine.submit(plan) for plan in (good(), bad(error()), good()))
    with pytest.raises(DiseError):
        failing.result(5)
    assert [future.result(5)[0] for future in (before, after)] == ["done", "done"]
    assert engine.submit(good()).result(5)[0] == "done"
    assert engine.close() == 0


@pytest.mark.parametrize("error", LEAVING)
def test_a_plan_that_raises_when_its_caller_gives_up_hurts_nobody(
    error: type[BaseException],
) -> None:
    reached = threading.Event()

    def stubborn() -> Plan[None]:
        try:
            while True:
                reached.set()
                yield asks()
        finally:
            raise error

    engine = AsyncEngine(lambda: Engine({"target": ToyPredictor()}, EngineConfig()))
    future = engine.submit(stubborn())
    assert reached.wait(5)
    future.cancel()
    assert engine.submit(good()).result(5)[0] == "done"
    assert engine.close() == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_plan_that_swallows_its_errors_ends() -> None:
    engine = AsyncEngine(lambda: Engine({"target": ToyPredictor()}, EngineConfig()))
    stuck = engine.submit(never_closing(ValueError()))
    assert engine.submit(good()).result(5)[0] == "done"
    assert stuck.cancel()
    assert engine.submit(good()).result(5)[0] == "done"
    assert engine.close() == 0


def answering(kind: str, answer: Any) -> tuple[LLM, SamplingParams]:
    """Return a model one of whose plugins, or its predictor, always gives that answer, and a
    request that meets it.
    """

    def returning(*_: Any) -> Any:
        return answer

    def asking(*_: Any) -> Plan[Any]:
        yield answer if kind == "reads" else asks()
        return answer

    def revising(_: Any, generation: Any, *__: Any) -> Plan[Any]:
        yield asks()
        return answer(generation) if callable(answer) else answer

    class BadPredictor(ToyPredictor):
        def read(self, reads: Sequence[Read]) -> Any:
            return answer if kind == "reading" else super().read(reads)

    kinds: dict[str, tuple[str, type[Any], str, Any]] = {
        "selector": ("selectors", Selector, "select", returning),
        "policy": ("unmasking_policies", UnmaskingPolicy, "choose", returning),
        "scorer": ("scorers", Scorer, "score", asking),
        "length": ("length_controllers", LengthController, "generate", asking),
        "reviser": ("revisers", Reviser, "revise", revising),
    }
    asked, plugins = {}, dict[str, dict[str, type[Any]]]()
    if kind != "reading":
        group, base, method, answers = kinds["scorer" if kind == "reads" else kind]
        plugins[group] = {"bad": type("Bad", (base,), {method: answers})}
        asked = {{"policy": "unmasking", "reads": "scorer"}.get(kind, kind): "bad"}
    params = SamplingParams(max_tokens=3, logprobs=None, **asked)  # type: ignore[arg-type]
    return LLM(BadPredictor(), catalog=with_guests(**plugins)), params


WRONG: list[tuple[str, Any, str]] = [
    *(("selector", mask, "selector 'bad' of plugin 'guest' must return a mask, bool")
      for mask in (None, [True], np.array([True]), np.array([1, 0]), np.zeros((2, 2), bool))),
    *(("policy", chosen, "policy 'bad' of plugin 'guest' must return distinct indices")
      for chosen in ([0, 0], [-1], [99], [0.5], ["a"], [[0]], None, 3, np.array([True, False]))),
    *(("scorer", score, "scorer 'bad' of plugin 'guest' must return")
      for score in (None, 1.0, "x", Score(math.nan, np.array([0])))),
    ("length", None, "length controller 'bad' of plugin 'guest' must return .*a Generation"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "answer", "promise"), WRONG, ids=repr)
def test_a_wrong_answer_names_its_strategy_and_the_rule(
    kind: str, answer: Any, promise: str
) -> None:
    llm, params = answering(kind, answer)
    with pytest.raises(PluginError, match=promise):
        llm.generate([1, 2], params)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("is_served", [True, False])
def test_a_strategy_that_leaves_is_named_in_any_thread(
    error: type[BaseException], is_served: bool
) -> None:
    class Leaving(Selector):
        def select(self, sequence: Any) -> Any:
            raise error("its own")

    catalog, params = with_guests(selectors={"bad": Leaving}), ScoringParams(selector="bad")

    async def serve() -> None:
        async with AsyncLLM(ToyPredictor(), catalog=catalog) as llm:
            await llm.score([1], [2], params)

    def score() -> None:
        LLM(ToyPredictor(), catalog=catalog).score([1], [2], params)

    told = f"^selector 'bad' of plugin 'guest': {error.__name__}: its own$"
    with pytest.raises(PlanError, match=told):
        asyncio.run(serve()) if is_served else score()


def test_ctrl_c_in_a_strategy_is_no_failure_of_it() -> None:
    class Interrupted(Selector):
        def select(self, sequence: Any) -> Any:
            signal.raise_signal(signal.SIGINT)

    llm = LLM(ToyPredictor(), catalog=with_guests(selectors={"bad": Interrupted}))
    with pytest.raises(KeyboardInterrupt):
        llm.score([1], [2], ScoringParams(selector="bad"))


def revision_of(ids: Any, **changes: Any) -> Callable[[Generation], Any]:
    """What a reviser answers: a text with these ids, and whatever else is changed."""

    def revised(generation: Generation) -> Any:
        told = (Revision((), 0.0, 0.0, 0, True),)
        text = replace(generation.sequence, ids=ids)
        return replace(generation, **{"sequence": text, "revisions": told, **changes})

    return revised


def meddling(generation: Generation) -> Generation:
    generation.sequence.ids[:] = 5
    return generation


LONG = np.array([1, 2, 3, 4, 5, 6])
UNTOLD = revision_of(LONG[:4], evaluation=Evaluation(Score(-1.0, LONG[:1])))
BAD_REVISIONS: list[tuple[Callable[[Generation], Any], str]] = [
    (lambda _: None, "a Generation"),
    (lambda g: replace(g, evaluation=Evaluation(Score(math.nan, LONG[:1]))), "a finite number"),
    (lambda g: replace(g, evaluation=Evaluation(Score(-1.0, LONG))), "positions in 0..4"),
    (lambda g: replace(g, revisions=["none"]), "a tuple of Revisions"),
    (revision_of(np.array([2, 2, 3, 4, 5])), "begins with the prompt"),
    (meddling, "begins with the prompt"),
    (revision_of(np.array([1, 2, 3, 4, MASK])), "without masks"),
    (revision_of(LONG / 1), "token ids, int64"),
    (revision_of(np.array([1, 2, 3, 4, 99])), "token ids in 0..11"),
    (revision_of(LONG), "at most 3 tokens, not one of 4"),
    (revision_of(LONG[:4]), "a report on all 2 tokens"),
    (lambda g: replace(UNTOLD(g), revisions=()), "an accepted Revision of a text that it changed"),
]


@pytest.mark.parametrize(("revised", "promise"), BAD_REVISIONS)
def test_a_bad_revision_names_its_reviser(
    revised: Callable[[Generation], Any], promise: str
) -> None:
    llm, params = answering("reviser", revised)
    plans = [llm.planner.generate([1, 2], each) for each in (params, SamplingParams(max_tokens=3))]
    failed, other = sorted(llm.run(plans), key=lambda outcome: outcome.index)
    assert other.error is None
    with pytest.raises(
        PluginError, match=f"reviser 'bad' of plugin 'guest' must return .*{promise}"
    ):
        failed.unwrap()


def test_a_reviser_that_never_ends_is_ended_by_its_budget() -> None:
    class Endless(Reviser):
        def revise(self, generation: Generation, denoiser: Any, scorer: Any) -> Plan[Any]:
            while True:
                yield from scorer.evaluate(generation.sequence)

    class Idle(Reviser):
        def revise(self, generation: Generation, denoiser: Any, scorer: Any) -> Plan[Any]:
            while True:
                yield []

    async def ask(name: str) -> Any:
        revisers = with_guests(revisers={"endless": Endless, "idle": Idle})
        async with AsyncLLM(ToyPredictor(), catalog=revisers, budget=Budget(passes=50)) as llm:
            return await llm.generate([1, 2], SamplingParams(max_tokens=3, reviser=name))

    for name, error in (("endless", "more than the 50 forward passes"), ("idle", "for nothing")):
        with pytest.raises(DiseError, match=error):
            asyncio.run(asyncio.wait_for(ask(name), 10))


Spoil = Callable[[Reading], Any]

SPOILED: list[tuple[Spoil, str]] = [
    (lambda _: None, "read must return Readings, not None"),
    (lambda r: replace(r, logprobs=r.logprobs[:-1]), "must be a numpy array, float32"),
    (lambda r: replace(r, logprobs=r.logprobs + 9), "at most 0"),
    (lambda r: replace(r, token_ids=r.token_ids + 1), "answer TokenLogProbs must be its targets"),
    (lambda r: replace(r, token_ids=r.token_ids + 0.5), "a numpy array, int64"),
    (lambda r: replace(r, share=7.0), "share must be in 0..1"),
    (lambda r: replace(r, share=None), "checking it failed with TypeError"),
]


class Spoiling(ToyPredictor):
    """Spoils its answers about texts that begin with such a token."""

    def __init__(self, spoil: Spoil, first: Container[int] = (3,)) -> None:
        super().__init__()
        self._spoil, self._first = spoil, first

    def read(self, reads: Sequence[Read]) -> Any:
        return [
            self._spoil(reading) if read.token_ids[0] in self._first else reading
            for read, reading in zip(reads, super().read(reads), strict=True)
        ]


@pytest.mark.parametrize(("spoil", "rule"), SPOILED)
def test_a_bad_answer_names_its_predictor_and_the_rule(spoil: Spoil, rule: str) -> None:
    llm = LLM(Spoiling(spoil))
    plans = [llm.planner.score([first], [4, 5], ScoringParams()) for first in (1, 3, 2)]
    outcomes = sorted(llm.run(plans), key=lambda outcome: outcome.index)
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    with pytest.raises(ModelError, match=f"predictor 'target' .*Spoiling.*{rule}"):
        outcomes[1].unwrap()


@pytest.mark.parametrize(("spoil", "rule"), SPOILED)
def test_the_kit_refuses_the_answers_that_the_engine_refuses(spoil: Spoil, rule: str) -> None:
    with pytest.raises(AssertionError, match=f"predictor 'target' .*Spoiling.*{rule}"):
        check_mask_predictor(Spoiling(spoil, range(VOCAB_SIZE)))


def test_a_predictor_that_writes_the_mask_fails_its_request_and_no_other() -> None:
    llm = LLM(Spoiling(lambda r: replace(r, token_ids=r.token_ids * 0 + MASK)))
    good, bad = llm.generate([[1], [3]], SamplingParams(max_tokens=3), on_error="return")
    assert good.error is None
    with pytest.raises(ModelError, match=r"Spoiling.* the candidate 11 is forbidden, as the mask"):
        raise bad.error


@pytest.mark.parametrize("error", LEAVING)
def test_a_predictor_that_leaves_fails_the_request_that_asked(error: type[BaseException]) -> None:
    def leave(_: Reading) -> Any:
        raise error

    async def ask() -> list[DiseError | None]:
        async with AsyncLLM(Spoiling(leave)) as llm:
            plans = [llm.planner.score([first], [4, 5], ScoringParams()) for first in (1, 3, 2)]
            found = {outcome.index: outcome.error async for outcome in llm.run(plans)}
            return [found[index] for index in range(3)]

    errors = asyncio.run(asyncio.wait_for(ask(), 10))
    assert [each is None for each in errors] == [True, False, True]


ENDLESS_START = """
import threading
from dise_core.engine import AsyncEngine, Engine
from dise_core.params.engine import EngineConfig
from dise_core.testing.toy_model import ToyPredictor

def stuck():
    begun.set()
    threading.Event().wait()
    yield []

begun = threading.Event()
engine = AsyncEngine(lambda: Engine({"target": ToyPredictor()}, EngineConfig()))
engine.submit(stuck())
begun.wait()
print(engine.close(grace=0.1))
"""


def test_a_start_that_never_ends_keeps_neither_the_engine_nor_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDLESS_START],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)


def killed(_: object) -> None:
    raise SystemExit("killed on purpose")


def test_a_dead_engine_fails_those_who_wait_and_those_who_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    class Slow(ToyPredictor):
        def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
            reached.set()
            go_on.wait(5)
            return super().read(reads)

    engine = AsyncEngine(lambda: Engine({"target": Slow()}, EngineConfig(max_num_seqs=1)))
    futures = [engine.submit(good()) for _ in range(5)]
    assert reached.wait(5)
    monkeypatch.setattr(AsyncEngine, "_leave", killed)
    go_on.set()
    for future in futures:
        with pytest.raises(ClosedError, match=r"the engine has died.*killed on purpose"):
            future.result(5)
    assert engine.death is not None
    with pytest.raises(ClosedError, match="has died"):
        engine.submit(good())


def test_a_dead_engine_is_told_by_health_and_by_every_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(AsyncLLM(ToyPredictor())) as url:
        assert httpx.get(f"{url}/health").json()["status"] == "ok"
        monkeypatch.setattr(AsyncEngine, "_leave", killed)
        for _ in range(2):
            answer = httpx.post(f"{url}/v1/score", json={"prompt": "a", "response": "b"}, timeout=5)
            assert answer.status_code == 503
            assert "the engine has died" in answer.json()["error"]["message"]
        health = httpx.get(f"{url}/health")
        assert health.status_code == 503
        assert health.json()["status"].startswith("dead: the engine has died")


answers = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.lists(st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=2)), max_size=4),
    st.integers(0, 3).map(np.zeros),
    st.integers(0, 3).map(np.arange),
    st.sampled_from([np.zeros((2, 2)), np.array("x"), np.array([None, 1], object), object()]),
)


KINDS = ["selector", "policy", "scorer", "length", "reviser", "reading", "reads"]


@cases(1 / 9)
@given(answers, st.sampled_from(KINDS))
def test_whatever_a_plugin_answers_is_a_result_or_our_error(answer: Any, kind: str) -> None:
    llm, params = answering(kind, answer)
    with bounded():
        [outcome] = llm.run([llm.planner.generate([1, 2], params)])
    assert outcome.error is None or len(str(outcome.error).splitlines()) == 1
