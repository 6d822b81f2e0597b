"""Plugins that raise, answer wrongly or never let go: their own request fails, with an error that
names them, and all others get their answers.
"""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core import (
    LLM,
    AsyncLLM,
    Budget,
    Candidates,
    Catalog,
    ClosedError,
    DiseError,
    Evaluation,
    Generation,
    InputError,
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
from dise_core.catalog import Entry
from dise_core.engine import AsyncEngine, Engine, async_engine
from dise_core.engine.request import Request
from dise_core.params import EngineConfig
from dise_core.plugins import installed_catalog
from dise_core.reading import Guidance
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import MASK
from tests.hostile.bounds import bounded, cases

LEAVING: list[type[BaseException]] = [
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
    BaseException,
    MemoryError,
    RecursionError,
]


class UnspeakableError(Exception):
    """Fails when it is told."""

    def __str__(self) -> str:
        raise SystemExit("not even that")


def asks() -> list[Read]:
    return [Read(np.array([1, 2, 3]), np.array([1]), _targets([2]))]


def _targets(ids: list[int]) -> Any:
    return TokenLogProbs(np.array(ids))


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
    while True:
        try:
            yield [Read(np.array([], np.int64), np.array([], np.int64), _targets([]))]
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
    stuck.cancel()
    assert engine.submit(good()).result(5)[0] == "done"
    engine.close(0.1)


def test_ctrl_c_in_the_callers_own_thread_goes_on() -> None:
    engine = Engine({"target": ToyPredictor()}, EngineConfig())
    with pytest.raises(KeyboardInterrupt):
        list(engine.run([in_the_middle(KeyboardInterrupt())]))


def catalog(**additions: dict[str, type[Any]]) -> Catalog:
    """The installed catalog with some classes of a plugin more."""
    found = installed_catalog()
    kinds: dict[str, Any] = {
        kind: {**getattr(found, kind), **{name: Entry(cls, "bad") for name, cls in classes.items()}}
        for kind, classes in additions.items()
    }
    return replace(found, **kinds)


BAD_MASKS = [
    None,
    [True],
    np.array([True]),
    np.array([1, 0]),
    np.zeros((2, 2), bool),
    np.zeros(3),
    "all",
    7,
]


@pytest.mark.parametrize("mask", BAD_MASKS, ids=repr)
def test_a_bad_mask_names_its_selector(mask: object) -> None:
    class Bad(Selector):
        def select(self, sequence: Any) -> Any:
            return mask

    llm = LLM(ToyPredictor(), catalog=catalog(selectors={"bad": Bad}))
    for selector in ("bad", "last-2+bad"):
        with pytest.raises(
            PluginError, match=r"selector .*Bad of tests.* must return a mask, bool"
        ):
            llm.score([1], [2, 3, 4], ScoringParams(selector=selector))


BAD_CHOICES = [[0, 0], [-1], [99], [0.5], ["a"], [[0]], None, 3, "zero", np.array([True, False])]


@pytest.mark.parametrize("chosen", BAD_CHOICES, ids=repr)
def test_a_bad_choice_names_its_policy(chosen: object) -> None:
    class Bad(UnmaskingPolicy):
        def choose(self, step: Any) -> Any:
            return chosen

    llm = LLM(ToyPredictor(), catalog=catalog(unmasking_policies={"bad": Bad}))
    with pytest.raises(PluginError, match=r"policy .*Bad of tests.* must return distinct indices"):
        llm.generate([1, 2], SamplingParams(max_tokens=4, unmasking="bad"))


BAD_SCORES = [None, 1.0, "x", Score(float("nan"), np.array([0])), Score(0.0, [0])]  # type: ignore[arg-type]


@pytest.mark.parametrize("score", BAD_SCORES, ids=repr)
def test_a_bad_score_names_its_scorer(score: object) -> None:
    class Bad(Scorer):
        def score(self, sequence: Any, selector: Any) -> Plan[Any]:
            yield asks()
            return score

    llm = LLM(ToyPredictor(), catalog=catalog(scorers={"bad": Bad}))
    with pytest.raises(PluginError, match=r"scorer .*Bad of tests.* must return"):
        llm.score([1], [2, 3], ScoringParams(scorer="bad"))


def test_a_bad_generation_names_its_length_controller() -> None:
    class Nothing(LengthController):
        def generate(self, prompt: Any, denoiser: Any, scorer: Any) -> Plan[Any]:
            yield asks()
            return None

    class OtherPrompt(LengthController):
        def generate(self, prompt: Any, denoiser: Any, scorer: Any) -> Plan[Generation]:
            text = yield from denoiser.write(np.append(prompt, 1), 2)
            return Generation(text, (yield from scorer.evaluate(text)))

    controllers = {"nothing": Nothing, "other-prompt": OtherPrompt}
    llm = LLM(ToyPredictor(), catalog=catalog(length_controllers=controllers))
    for name, promise in (("nothing", "a Generation"), ("other-prompt", "begins with the prompt")):
        with pytest.raises(PluginError, match=f"length controller .* must return .*{promise}"):
            llm.generate([1, 2], SamplingParams(max_tokens=2, length=name))


def revision_of(ids: Any, **changes: Any) -> Callable[[Generation], Any]:
    """What a reviser answers: a text with these ids, and whatever else is changed."""

    def revised(generation: Generation) -> Any:
        told = (Revision((), 0.0, 0.0, 0, True),)
        text = replace(generation.sequence, ids=ids)
        return replace(generation, **{"sequence": text, "revisions": told, **changes})

    return revised


LONG = np.array([1, 2, 3, 4, 5, 6])
UNTOLD = revision_of(LONG[:4], evaluation=Evaluation(Score(-1.0, LONG[:1])))
BAD_REVISIONS: list[tuple[Callable[[Generation], Any], str]] = [
    (lambda _: None, "a Generation"),
    (lambda g: replace(g, sequence=None), "a Generation"),
    (lambda g: replace(g, evaluation=replace(g.evaluation, score=None)), "a Score"),
    (lambda g: replace(g, evaluation=Evaluation(Score(math.nan, LONG[:1]))), "a finite number"),
    (lambda g: replace(g, evaluation=Evaluation(Score(-1.0, LONG))), "positions in 0..4"),
    (lambda g: replace(g, revisions=["none"]), "a tuple of Revisions"),
    (lambda g: replace(g, sequence=replace(g.sequence, prompt_length=1)), "with the prompt"),
    (revision_of(np.array([2, 2, 3, 4, 5])), "begins with the prompt"),
    (revision_of(np.array([1, 2, 3, 4, MASK])), "without masks"),
    (revision_of([1, 2, 3, 4, 5]), "token ids, int64"),
    (revision_of(LONG / 1), "token ids, int64"),
    (revision_of(np.array([1, 2, 3, 4, 99])), "token ids in 0..11"),
    (revision_of(np.array([1, 2, 3, -1, 4])), "token ids in 0..11"),
    (revision_of(LONG), "at most 3 tokens, not one of 4"),
    (revision_of(LONG[:4]), "a report on all 2 tokens"),
    (lambda g: replace(UNTOLD(g), revisions=()), "an accepted Revision of a text that it changed"),
]


@pytest.mark.parametrize(("revised", "promise"), BAD_REVISIONS)
def test_a_bad_revision_names_its_reviser(
    revised: Callable[[Generation], Any], promise: str
) -> None:
    class Bad(Reviser):
        def revise(self, generation: Generation, denoiser: Any, scorer: Any) -> Plan[Any]:
            yield asks()
            return revised(generation)

    llm = LLM(ToyPredictor(), catalog=catalog(revisers={"bad": Bad}))
    given = SamplingParams(max_tokens=3, reviser="bad")
    plans = [llm.planner.generate([1, 2], each) for each in (given, SamplingParams(max_tokens=3))]
    failed, other = sorted(llm.run(plans), key=lambda outcome: outcome.index)
    assert other.error is None
    with pytest.raises(PluginError, match=f"reviser .*Bad of tests.* must return .*{promise}"):
        failed.unwrap()


def test_a_reviser_cannot_change_the_text_that_it_is_compared_with() -> None:
    class Meddling(Reviser):
        def revise(self, generation: Generation, denoiser: Any, scorer: Any) -> Plan[Any]:
            yield asks()
            generation.sequence.ids[:] = 5
            return generation

    llm = LLM(ToyPredictor(), catalog=catalog(revisers={"bad": Meddling}))
    with pytest.raises(PluginError, match=r"reviser .* begins with the prompt"):
        llm.generate([1, 2], SamplingParams(max_tokens=3, reviser="bad"))


def test_a_reviser_that_fails_ends_its_own_request() -> None:
    class Raising(Reviser):
        def revise(self, generation: Generation, denoiser: Any, scorer: Any) -> Plan[Any]:
            yield asks()
            raise ZeroDivisionError("on purpose")

    llm = LLM(ToyPredictor(), catalog=catalog(revisers={"bad": Raising}))
    with pytest.raises(PlanError, match="ZeroDivisionError: on purpose"):
        llm.generate([1, 2], SamplingParams(max_tokens=3, reviser="bad"))


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
        revisers = catalog(revisers={"endless": Endless, "idle": Idle})
        async with AsyncLLM(ToyPredictor(), catalog=revisers, budget=Budget(passes=50)) as llm:
            return await llm.generate([1, 2], SamplingParams(max_tokens=3, reviser=name))

    for name, error in (("endless", "more than the 50 forward passes"), ("idle", "for nothing")):
        with pytest.raises(DiseError, match=error):
            asyncio.run(asyncio.wait_for(ask(name), 10))


Spoil = Callable[[Reading], Any]

SPOILED: list[tuple[Spoil, str]] = [
    (lambda _: None, "must be a Reading"),
    (lambda r: replace(r, logprobs=r.logprobs[:-1]), "logprobs must have the shape"),
    (lambda r: replace(r, logprobs=r.logprobs.tolist()), "an array of floats"),
    (lambda r: replace(r, logprobs=r.logprobs + 9), "at most 0"),
    (lambda r: replace(r, logprobs=r.logprobs * 0 + np.inf), "at most 0"),
    (lambda r: replace(r, token_ids=r.token_ids + 1), "the targets that were asked for"),
    (lambda r: replace(r, token_ids=r.token_ids + 0.5), "an array of integers"),
    (lambda r: replace(r, token_ids=r.token_ids[None]), "token_ids must have the shape"),
    (lambda r: replace(r, share=7.0), "share must be in 0..1"),
    (lambda r: replace(r, share=None), "checking it failed with TypeError"),
    (lambda r: replace(r, share="all"), "checking it failed with TypeError"),
    (lambda r: replace(r, share=np.ones(3)), "checking it failed with ValueError"),
]


@pytest.mark.parametrize(("spoil", "rule"), SPOILED)
def test_a_bad_answer_names_its_predictor_and_the_rule(spoil: Spoil, rule: str) -> None:
    class Spoiling(ToyPredictor):
        """Spoils the answers about texts that begin with 3."""

        def read(self, reads: Sequence[Read]) -> Any:
            return [
                spoil(reading) if read.token_ids[0] == 3 else reading
                for read, reading in zip(reads, super().read(reads), strict=True)
            ]

    llm = LLM(Spoiling())
    plans = [llm.planner.score([first], [4, 5], ScoringParams()) for first in (1, 3, 2)]
    outcomes = sorted(llm.run(plans), key=lambda outcome: outcome.index)
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    with pytest.raises(ModelError, match=f"predictor 'target' .*Spoiling.*{rule}"):
        outcomes[1].unwrap()


def test_a_predictor_that_writes_the_mask_fails_its_request_and_no_other() -> None:
    class Masking(ToyPredictor):
        """Answers texts that begin with 3 with the mask."""

        def read(self, reads: Sequence[Read]) -> Any:
            return [
                replace(reading, token_ids=reading.token_ids * 0 + self.info.special.mask_id)
                if read.token_ids[0] == 3 and isinstance(read.readout, Candidates)
                else reading
                for read, reading in zip(reads, super().read(reads), strict=True)
            ]

    params = SamplingParams(max_tokens=3)
    good, bad = LLM(Masking()).generate([[1], [3]], params, on_error="return")
    assert good.error is None
    with pytest.raises(ModelError, match=r"Masking.* the candidate 11 is forbidden, as the mask"):
        raise bad.error


IDS = np.array([1, 2, 3])


@pytest.mark.parametrize(
    "fields",
    [
        {"token_ids": [1, 2, 3]},
        {"token_ids": IDS[None]},
        {"token_ids": IDS.astype(np.int32)},
        {"positions": IDS / 2},
        {"positions": None},
        {"positions": IDS},
        {"positions": -IDS},
        {"readout": TokenLogProbs(np.array([1.0]))},
        {"readout": _targets([1, 2])},
        {"guidance": Guidance([1, 2, 3], 1.0)},  # type: ignore[arg-type]
        {"guidance": Guidance(IDS[:2], 1.0)},
    ],
)
def test_a_bad_question_ends_its_own_plan(fields: dict[str, Any]) -> None:
    asked = {"token_ids": IDS, "positions": IDS[:1], "readout": _targets([2])}

    def asking() -> Plan[str]:
        yield [Read(**asked)]  # type: ignore[arg-type]
        yield [Read(**asked | fields)]  # type: ignore[arg-type]
        return "answered"

    outcomes = sorted(LLM(ToyPredictor()).run([asking(), good()]), key=lambda found: found.index)
    assert isinstance(outcomes[0].error, PlanError)
    assert outcomes[1].error is None


@pytest.mark.parametrize("error", LEAVING)
def test_a_predictor_that_leaves_fails_the_request_that_asked(error: type[BaseException]) -> None:
    class Leaving(ToyPredictor):
        def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
            if any(read.token_ids[0] == 3 for read in reads):
                raise error
            return super().read(reads)

    async def ask() -> list[DiseError | None]:
        async with AsyncLLM(Leaving()) as llm:
            plans = [llm.planner.score([first], [4, 5], ScoringParams()) for first in (1, 3, 2)]
            found = {outcome.index: outcome.error async for outcome in llm.run(plans)}
            return [found[index] for index in range(3)]

    errors = asyncio.run(asyncio.wait_for(ask(), 10))
    assert [each is None for each in errors] == [True, False, True]


def test_a_start_that_takes_too_long_is_given_up_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(async_engine, "START_SECONDS", 0.2)
    monkeypatch.setattr(async_engine, "LOOK_SECONDS", 0.05)
    ended = threading.Event()

    def stuck() -> Plan[str]:
        ended.wait(20)
        yield asks()
        return "late"

    engine = AsyncEngine(lambda: Engine({"target": ToyPredictor()}, EngineConfig()))
    late = [engine.submit(stuck()) for _ in range(5)]
    prompt = engine.submit(good())
    for future in late:
        with pytest.raises(InputError, match=r"longer than 0\.2 s"):
            future.result(5)
    assert prompt.result(5)[0] == "done"
    ended.set()
    assert engine.submit(good()).result(5)[0] == "done"
    assert engine.close() == 0


ENDLESS_START = """
import threading
from dise_core.engine import AsyncEngine, Engine
from dise_core.params import EngineConfig
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


def test_a_dead_engine_fails_those_who_wait_and_those_who_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    class Slow(ToyPredictor):
        def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
            reached.set()
            go_on.wait(5)
            return super().read(reads)

    def killed(self: object) -> None:
        raise SystemExit("killed on purpose")

    engine = AsyncEngine(lambda: Engine({"target": Slow()}, EngineConfig(max_num_seqs=1)))
    futures = [engine.submit(good()) for _ in range(5)]
    assert reached.wait(5)
    monkeypatch.setattr(AsyncEngine, "_leave", killed)
    go_on.set()
    started = time.monotonic()
    for future in futures:
        with pytest.raises(ClosedError, match=r"the engine has died.*killed on purpose"):
            future.result(5)
    assert time.monotonic() - started < 5
    assert engine.death is not None
    with pytest.raises(ClosedError, match="has died"):
        engine.submit(good())


answers = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.lists(st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=2)), max_size=4),
    st.integers(0, 3).map(np.zeros),
    st.integers(0, 3).map(np.arange),
    st.sampled_from([np.zeros((2, 2)), np.array("x"), np.array([None, 1], object), object()]),
)


KINDS = ["selector", "policy", "score", "generation", "revision", "reading", "reads"]


@cases(1 / 9)
@given(answers, st.sampled_from(KINDS))
def test_whatever_a_plugin_answers_is_a_result_or_our_error(answer: Any, kind: str) -> None:
    class BadSelector(Selector):
        def select(self, sequence: Any) -> Any:
            return answer

    class BadPolicy(UnmaskingPolicy):
        def choose(self, step: Any) -> Any:
            return answer

    class BadScorer(Scorer):
        def score(self, sequence: Any, selector: Any) -> Plan[Any]:
            yield answer if kind == "reads" else asks()
            return answer

    class BadLength(LengthController):
        def generate(self, prompt: Any, denoiser: Any, scorer: Any) -> Plan[Any]:
            yield asks()
            return answer

    class BadReviser(Reviser):
        def revise(self, generation: Any, denoiser: Any, scorer: Any) -> Plan[Any]:
            yield asks()
            if not isinstance(answer, np.ndarray):
                return answer
            return replace(generation, sequence=replace(generation.sequence, ids=answer))

    class BadPredictor(ToyPredictor):
        def read(self, reads: Sequence[Read]) -> Any:
            return answer if kind == "reading" else super().read(reads)

    names = {
        "selector": {"selector": "bad"},
        "policy": {"unmasking": "bad"},
        "score": {"scorer": "bad"},
        "reads": {"scorer": "bad"},
        "generation": {"length": "bad"},
        "revision": {"reviser": "bad"},
    }
    llm = LLM(
        BadPredictor(),
        catalog=catalog(
            selectors={"bad": BadSelector},
            unmasking_policies={"bad": BadPolicy},
            scorers={"bad": BadScorer},
            length_controllers={"bad": BadLength},
            revisers={"bad": BadReviser},
        ),
    )
    params = SamplingParams(max_tokens=3, logprobs=None, **names.get(kind, {}))  # type: ignore[arg-type]
    with bounded():
        [outcome] = llm.run([llm.planner.generate([1, 2], params)])
    assert outcome.error is None or len(str(outcome.error).splitlines()) == 1


def test_a_request_tells_of_an_error_that_cannot_be_told() -> None:
    request = Request(0, at_the_start(UnspeakableError()))
    request.start()
    assert str(request.error) == "UnspeakableError"
