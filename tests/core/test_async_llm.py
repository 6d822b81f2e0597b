"""AsyncLLM: the same answers as LLM, places freed at once, back-pressure, an orderly end."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any

import numpy as np
import pytest

from dise_core import (
    LLM,
    AsyncLLM,
    Budget,
    CanvasUpdate,
    InputError,
    Outcome,
    Read,
    Reading,
    RequestOutput,
    SamplingParams,
)
from dise_core.constraints.orders import Order
from dise_core.engine import AsyncEngine, Engine, async_engine
from dise_core.errors import ClosedError, OverloadedError
from dise_core.front import async_llm
from dise_core.params.engine import EngineConfig
from dise_core.plans.plan import Plan
from dise_core.plans.readouts import TokenLogProbs
from dise_core.testing.toy_model import MASK, ToyPredictor
from tests.streamed import parted

PARAMS = SamplingParams(max_tokens=8, block_length=4, seed=0)


class Gate(ToyPredictor):
    """Answers only while its gate is open, and counts how many calls have come."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.calls = 0

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        self.calls += 1
        assert self.gate.wait(20)
        return super().read(reads)


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def bounded() -> None:
        asyncio.run(asyncio.wait_for(test(), 120))

    return bounded


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def shown(answer: RequestOutput) -> dict[str, Any]:
    record = answer.to_dict()
    del record["usage"]["seconds"]
    return record


def endless() -> Plan[RequestOutput]:
    while True:
        ids = np.array([1, 2])
        yield [Read(ids, np.array([0]), TokenLogProbs(ids[:1]))]


async def outcomes(llm: AsyncLLM, *plans: Plan[RequestOutput]) -> list[Outcome[RequestOutput]]:
    return [outcome async for outcome in llm.run(plans)]


@in_a_loop
async def test_every_method_gives_what_llm_gives() -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda llm: llm.generate(["abc", "de"], PARAMS),
        lambda llm: llm.score("abc", "def"),
        lambda llm: llm.rank(["abc", "b"], [["d", "e"], ["f", "gh", "i"]]),
    ]

    plain = LLM(ToyPredictor())
    async with AsyncLLM(ToyPredictor()) as llm:
        for call in calls:
            answers = await call(llm)
            assert [shown(each) for each in answers] == [shown(each) for each in call(plain)]
            assert answers[0].usage.seconds > 0
        ranked = await llm.rank("abc", ["d", "e"])
        assert shown(ranked) == shown(plain.rank("abc", ["d", "e"]))


@pytest.mark.parametrize("length", ["fixed", "dise-flexible", "daedal", "rho-eos", "cal"])
def test_both_doors_stream_the_same_and_text_that_is_settled_stays(length: str) -> None:
    params = SamplingParams(
        max_tokens=8,
        block_length=4,
        temperature=0.7,
        seed=3,
        length=length,
        length_settings={"max_gen_length": 24} if length in ("daedal", "rho-eos") else {},
    )

    async def streamed() -> list[CanvasUpdate | RequestOutput]:
        async with AsyncLLM(ToyPredictor()) as llm:
            return [event async for event in llm.stream("abc", params)]

    theirs, their_answer = parted(asyncio.run(streamed()))
    llm = LLM(ToyPredictor())
    mine, my_answer = parted(llm.stream("abc", params))
    [plain] = llm.generate("abc", params)
    assert theirs == mine
    assert shown(my_answer) == shown(their_answer) == shown(plain)
    settled = [update.settled for update in mine]
    final = plain.outputs[0].text
    assert all(final.startswith(text) for text in settled)
    assert settled == sorted(settled, key=len)
    assert any(settled) is (length != "dise-flexible")


@in_a_loop
async def test_a_conversation_is_streamed_and_a_bad_prompt_raises_in_both_doors() -> None:
    with pytest.raises(InputError, match="outside the vocabulary"):
        list(LLM(ToyPredictor()).stream([99]))

    async with AsyncLLM("countdown") as llm:
        messages = [{"role": "user", "content": "83,18,75 -> 10"}]
        params = SamplingParams(max_tokens=8, block_length=8, seed=0)
        _, answer = parted([event async for event in llm.stream(messages, params)])
        [asked] = await llm.chat(messages, params)
        assert shown(answer) == shown(asked)
        with pytest.raises(InputError, match="outside the vocabulary"):
            _ = [event async for event in llm.stream([1_000_000])]


def test_leaving_a_synchronous_stream_ends_its_plan() -> None:
    model = Gate()
    model.gate.set()
    llm = LLM(model)
    stream = llm.stream([1, 2], SamplingParams(max_tokens=30, tokens_per_step=1))
    next(stream)
    stream.close()
    assert model.calls == 0
    assert llm.generate("abc", PARAMS)


@in_a_loop
async def test_a_cancelled_request_frees_its_place_before_the_next_pass() -> None:
    model = Gate()
    async with AsyncLLM(model, max_num_seqs=1) as llm:
        first = asyncio.ensure_future(outcomes(llm, endless()))
        await eventually(lambda: model.calls == 1)
        second = asyncio.ensure_future(llm.score("a", "b"))
        await eventually(lambda: llm.engine.num_waiting == 1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        model.gate.set()
        await second
        assert model.calls == 2


@in_a_loop
async def test_who_is_cancelled_while_others_run_waits_no_more() -> None:
    async with AsyncLLM(ToyPredictor(), max_num_seqs=1) as llm:
        running = asyncio.ensure_future(outcomes(llm, endless()))
        await eventually(lambda: llm.engine.num_running == 1)
        waiting = asyncio.ensure_future(llm.score("a", "b"))
        await eventually(lambda: llm.engine.num_waiting == 1)
        waiting.cancel()
        await eventually(lambda: llm.engine.num_waiting == 0)
        assert llm.engine.num_running == 1
        running.cancel()


def test_a_stream_that_is_taken_slowly_tells_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_llm, "MAX_NEWS", 2)
    params = SamplingParams(max_tokens=30, tokens_per_step=1, length="fixed")

    async def taken_late() -> list[CanvasUpdate | RequestOutput]:
        async with AsyncLLM(ToyPredictor()) as llm:
            stream = llm.stream([1, 2], params)
            first = await anext(stream)
            await eventually(lambda: llm.engine.num_running == 0)
            return [first, *[event async for event in stream]]

    updates, answer = parted(asyncio.run(taken_late()))
    assert len(updates) <= 3
    assert len(answer.outputs[0].token_ids) == 30


@in_a_loop
async def test_leaving_a_stream_ends_the_request() -> None:
    model = Gate()
    async with AsyncLLM(model) as llm:
        stream = llm.stream([1, 2], SamplingParams(max_tokens=30, tokens_per_step=1))
        await anext(stream)
        await stream.aclose()
        await asyncio.sleep(0)  # in which the loop hands the cancellation on
        model.gate.set()
        await eventually(lambda: llm.engine.num_running == 0)
        assert model.calls <= 1


@in_a_loop
async def test_what_has_ended_holds_no_room_in_the_cache() -> None:
    params = PARAMS.model_copy(update={"cache": "prefix"})
    async with AsyncLLM("countdown", max_cache_tokens=100, budget=Budget(passes=20)) as llm:
        room = llm.predictor.room
        assert room is not None
        await llm.generate("1,2 -> 3", params)
        untaken = llm.stream("1,2 -> 3", params)
        await anext(untaken)
        left = llm.stream("1,2 -> 3", params)
        await anext(left)
        await left.aclose()
        gc.disable()
        try:
            with pytest.raises(InputError, match="more than the 20 forward passes") as kept:
                await llm.generate("1,2 -> 3", params.model_copy(update={"max_tokens": 64}))
            await eventually(lambda: llm.engine.num_running == 0 and room.num_free == 100)
        finally:
            gc.enable()
        assert kept.value.parameter is None
        await untaken.aclose()


CHOICE = {"constraint": "choice", "constraint_settings": {"choices": ("a", "b")}}


def test_what_waits_for_its_constraint_is_told_that_the_engine_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def built(*_: object) -> None:
        begun.set()
        assert may_end.wait(60)

    monkeypatch.setattr(Order, "built", built)

    @in_a_loop
    async def closing_ends_them() -> None:
        llm = AsyncLLM(ToyPredictor())
        params = PARAMS.model_copy(update=CHOICE)
        waiting = [asyncio.ensure_future(llm.generate("abc", params)) for _ in range(4)]
        cancelled = asyncio.ensure_future(llm.generate("abc", params))
        await eventually(begun.is_set)
        cancelled.cancel()
        await llm.close()
        may_end.set()
        ended = await asyncio.gather(*waiting, cancelled, return_exceptions=True)
        kinds = [type(one) for one in ended]
        assert kinds == [ClosedError] * 4 + [asyncio.CancelledError]

    closing_ends_them()


def test_a_model_that_cannot_be_loaded_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(InputError):
        AsyncLLM("/no/such/model")
    assert all(thread.name != "dise-start" for thread in {*threading.enumerate()} - before)


@in_a_loop
async def test_weights_that_wait_for_a_pass_are_refused_where_the_engine_ends() -> None:
    model = Gate()
    llm = AsyncLLM(model)
    running = asyncio.ensure_future(llm.score("a", "b"))
    await eventually(lambda: model.calls == 1)
    update = asyncio.ensure_future(llm.update_weights([]))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(llm.close(grace=0))
    await eventually(lambda: llm.engine._is_aborting)
    model.gate.set()
    await closing
    assert await running
    with pytest.raises(ClosedError, match="the engine was shut down"):
        await update


@in_a_loop
async def test_a_full_queue_refuses_at_once() -> None:
    model = Gate()
    async with AsyncLLM(model, max_num_seqs=1, max_waiting=2) as llm:
        running = asyncio.ensure_future(llm.score("a", "b"))
        await eventually(lambda: model.calls == 1)
        waiting = [asyncio.ensure_future(llm.score("a", "b")) for _ in range(2)]
        await eventually(lambda: llm.engine.num_waiting == 2)
        with pytest.raises(
            OverloadedError, match="2 requests are waiting already; try again later"
        ):
            await llm.score("a", "b")
        model.gate.set()
        assert len(await asyncio.gather(running, *waiting)) == 3


@in_a_loop
async def test_closing_lets_requests_end_and_then_fails_what_is_left() -> None:
    llm = AsyncLLM(ToyPredictor())
    forever = asyncio.ensure_future(outcomes(llm, endless()))
    answered = asyncio.ensure_future(llm.generate("abc", PARAMS))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(llm.close(grace=0.5))
    await asyncio.sleep(0.05)
    with pytest.raises(ClosedError, match="takes no more requests"):
        await llm.score("a", "b")
    assert await answered
    await closing
    [outcome] = await forever
    with pytest.raises(ClosedError, match="shut down before the request was done"):
        outcome.unwrap()


def test_stop_texts_end_the_text_and_nothing_else() -> None:
    [whole] = LLM(ToyPredictor()).generate("abc", PARAMS)
    text = whole.outputs[0].text
    [cut] = LLM(ToyPredictor()).generate(
        "abc", PARAMS.model_copy(update={"stop": ("zz", text[2:4], text[3])})
    )
    output = cut.outputs[0]
    assert output.text == text[: min(text.index(text[2:4]), text.index(text[3]))]
    assert output.finish_reason == "stop"
    assert output.token_ids == whole.outputs[0].token_ids
    assert output.score.value == whole.outputs[0].score.value


def asking(after: threading.Event | None = None, begun: threading.Event | None = None) -> Plan[str]:
    """Return a plan that tells that it has begun, and asks once, after the event."""
    if begun is not None:
        begun.set()
    assert after is None or after.wait(60)
    yield [Read(np.array([1, 2, MASK]), np.array([2]), TokenLogProbs(np.array([3])))]
    return "done"


def engine_of(model: ToyPredictor) -> AsyncEngine:
    return AsyncEngine(lambda: Engine({"target": model}, EngineConfig()), max_waiting=8)


def test_a_request_waits_for_one_that_is_just_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ToyPredictor()
    begun, may_ask, engine = threading.Event(), threading.Event(), engine_of(model)
    assert engine.submit(asking()).result(60)[0] == "done"
    # As if the last step had taken a minute, so that even on a busy machine the other is in time.
    monkeypatch.setattr(async_engine, "GATHER_SECONDS", 60.0)
    monkeypatch.setattr(engine, "_step_seconds", 60.0)
    slow = engine.submit(asking(may_ask, begun))
    assert begun.wait(60)
    quick = engine.submit(asking())
    time.sleep(0.1)  # enough for an engine that would not wait to run it alone
    may_ask.set()
    assert {slow.result(60)[0], quick.result(60)[0]} == {"done"}
    assert [len(batch) for batch in model.batches] == [1, 2]
    assert engine.close() == 0


def test_a_request_waits_no_longer_than_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    may_ask, engine = threading.Event(), engine_of(ToyPredictor())
    monkeypatch.setattr(async_engine, "GATHER_SECONDS", 0.01)
    slow, quick = engine.submit(asking(may_ask)), engine.submit(asking())
    assert quick.result(60)[0] == "done"
    may_ask.set()
    assert slow.result(60)[0] == "done"
    assert engine.close() == 0


def test_the_cancelled_behind_slow_starts_are_forgotten() -> None:
    may_ask, engine = threading.Event(), engine_of(ToyPredictor())
    slow = [engine.submit(asking(may_ask)) for _ in range(async_engine.NUM_STARTERS)]
    held = list[weakref.ref[threading.Event]]()
    for _ in range(100):
        prompt = threading.Event()  # or whatever else a plan may hold
        held.append(weakref.ref(prompt))
        engine.submit(asking(prompt)).cancel()
        del prompt
    engine.submit(asking()).cancel()
    until = time.monotonic() + 60
    while any(ref() is not None for ref in held) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(ref() is not None for ref in held)
    may_ask.set()
    assert {one.result(60)[0] for one in slow} == {"done"}
    assert engine.close() == 0


def test_a_start_that_does_not_end_holds_up_no_other_request_and_no_closing() -> None:
    begun, never, engine = threading.Event(), threading.Event(), engine_of(ToyPredictor())
    stuck = engine.submit(asking(never, begun))
    assert begun.wait(60)
    others = [engine.submit(asking()) for _ in range(5)]
    assert {other.result(60)[0] for other in others} == {"done"}
    assert engine.close(grace=0) == 1
    with pytest.raises(ClosedError, match="shut down before the request was done"):
        stuck.result(0)
    never.set()


@pytest.mark.parametrize("is_gap", [False, True])
def test_a_constraint_that_was_prepared_is_what_the_plans_use(
    monkeypatch: pytest.MonkeyPatch, is_gap: bool
) -> None:
    built: list[str] = []
    build = Order.built

    def watched(order: Order, *args: Any) -> Any:
        built.append(threading.current_thread().name)
        return build(order, *args)

    monkeypatch.setattr(Order, "built", watched)
    expression = "[a-f]{4}h" if is_gap else "[a-f]{3}h"
    settings = {"constraint": "regex", "constraint_settings": {"regex": expression}}
    params = SamplingParams(max_tokens=5, seed=0, **settings)  # type: ignore[arg-type]

    async def written() -> list[RequestOutput]:
        async with AsyncLLM(ToyPredictor()) as llm:
            if is_gap:
                return await llm.fill(["ab", "cd"], ["e", "f"], params)
            return await llm.generate(["ab", "cd"], params)

    answers = asyncio.run(written())
    assert len(built) == 1
    assert all(answer.outputs[0].text.rstrip()[-1] == "h" for answer in answers)
