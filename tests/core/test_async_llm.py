"""AsyncLLM: the same answers as LLM, places freed at once, back-pressure, an orderly end."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest

from dise_core import (
    LLM,
    AsyncLLM,
    CanvasUpdate,
    InputError,
    Read,
    Reading,
    RequestOutput,
    SamplingParams,
    ScoringParams,
)
from dise_core.engine import AsyncEngine, Engine, Outcome, async_engine
from dise_core.errors import ClosedError, ModelOutputError, OverloadedError, PlanError
from dise_core.params import EngineConfig
from dise_core.reading import Plan, TokenLogProbs
from dise_core.testing.toy_model import END, MASK, ToyPredictor

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


class Poisoned(ToyPredictor):
    """Answers NaN for any text with the token 9 in front."""

    def logits(self, ids: np.ndarray) -> np.ndarray:
        return super().logits(ids) * (np.nan if ids[0] == 9 else 1)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await test()

    asyncio.run(bounded())


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


def test_every_method_gives_what_llm_gives() -> None:
    async def test() -> None:
        plain = LLM(ToyPredictor())
        async with AsyncLLM(ToyPredictor()) as llm:
            generated = await llm.generate(["abc", "de"], PARAMS)
            assert [shown(a) for a in generated] == [
                shown(a) for a in plain.generate(["abc", "de"], PARAMS)
            ]
            scored = await llm.score("abc", "def")
            assert [shown(a) for a in scored] == [shown(a) for a in plain.score("abc", "def")]
            assert shown(await llm.rank("abc", ["d", "e"])) == shown(plain.rank("abc", ["d", "e"]))
            lists = [["d", "e"], ["f", "gh", "i"]]
            assert [shown(a) for a in await llm.rank(["abc", "b"], lists)] == [
                shown(a) for a in plain.rank(["abc", "b"], lists)
            ]
            assert generated[0].usage.seconds > 0

    run(test)


def test_two_hundred_mixed_requests_at_once_get_the_answers_they_get_alone() -> None:
    async def test() -> None:
        plain = LLM(ToyPredictor())
        random = np.random.default_rng(0)
        async with AsyncLLM(ToyPredictor(), max_num_seqs=8) as llm:
            prompts = [random.integers(0, END, random.integers(1, 9)).tolist() for _ in range(200)]
            kinds = [
                lambda m, p: m.generate([p], PARAMS),
                lambda m, p: m.score([p], [[1, 2, 3]]),
                lambda m, p: m.score(
                    [p], [[1, 2, 3]], ScoringParams(scorer="mc", scorer_settings={"num_samples": 3})
                ),
            ]
            waiting = [kinds[i % 3](llm, prompt) for i, prompt in enumerate(prompts)]
            for i, [answer] in enumerate(await asyncio.gather(*waiting)):
                [alone] = kinds[i % 3](plain, prompts[i])
                assert shown(answer) == shown(alone)

    run(test)


def test_a_stream_shows_every_token_once_and_ends_with_the_answer() -> None:
    async def test() -> None:
        async with AsyncLLM(ToyPredictor()) as llm:
            params = SamplingParams(max_tokens=8, block_length=4, temperature=1.0, n=2, seed=0)
            *updates, answer = [event async for event in llm.stream([1, 2], params)]
            assert isinstance(answer, RequestOutput)
            for sample in (0, 1):
                [output] = [output for output in answer.outputs if output.index == sample]
                mine = [u for u in updates if isinstance(u, CanvasUpdate) and u.index == sample]
                assert [update.is_fresh for update in mine] == [True] + [False] * (len(mine) - 1)
                canvas = [MASK] * 8
                for update in mine:
                    assert update.num_tokens == 8
                    for place, token_id, text, is_end in update.committed:
                        assert canvas[place] == MASK
                        assert text == llm.predictor.tokenizer.token_text(token_id)
                        assert is_end == (token_id == END)
                        canvas[place] = token_id
                    first = canvas.index(MASK) if MASK in canvas else 8
                    assert update.text == llm.predictor.tokenizer.decode(np.array(canvas[:first]))
                known = [(c, t) for c, t in zip(canvas, output.token_ids, strict=True) if c != MASK]
                assert len(known) == 6
                assert all(c == t for c, t in known)

    run(test)


@pytest.mark.parametrize("length", ["fixed", "dise-flexible", "daedal"])
def test_both_doors_stream_the_same_and_text_that_is_settled_stays(length: str) -> None:
    params = SamplingParams(
        max_tokens=8,
        block_length=4,
        temperature=0.7,
        seed=3,
        length=length,
        length_settings={"max_gen_length": 24} if length == "daedal" else {},
    )

    async def streamed() -> list[CanvasUpdate | RequestOutput]:
        async with AsyncLLM(ToyPredictor()) as llm:
            return [event async for event in llm.stream("abc", params)]

    *theirs, their_answer = asyncio.run(streamed())
    llm = LLM(ToyPredictor())
    *mine, my_answer = llm.stream("abc", params)
    [plain] = llm.generate("abc", params)
    assert isinstance(my_answer, RequestOutput)
    assert isinstance(their_answer, RequestOutput)
    assert theirs == mine
    assert shown(my_answer) == shown(their_answer) == shown(plain)
    settled = [update.settled for update in mine if isinstance(update, CanvasUpdate)]
    final = plain.outputs[0].text
    assert all(final.startswith(text) for text in settled)
    assert settled == sorted(settled, key=len)
    assert any(settled) is (length != "dise-flexible")


def test_both_doors_tell_of_each_plan_by_its_number() -> None:
    def plans(llm: LLM | AsyncLLM) -> list[Plan[RequestOutput]]:
        return [llm.planner.generate(prompt, PARAMS) for prompt in ("abc", [99], "de")]

    async def told() -> list[Outcome[RequestOutput]]:
        async with AsyncLLM(ToyPredictor(), max_num_seqs=2) as llm:
            return await outcomes(llm, *plans(llm))

    plain = LLM(ToyPredictor(), max_num_seqs=2)
    mine = sorted(plain.run(plans(plain)), key=lambda outcome: outcome.index)
    theirs = sorted(asyncio.run(told()), key=lambda outcome: outcome.index)
    for one, other in zip(mine, theirs, strict=True):
        assert (one.index, str(one.error)) == (other.index, str(other.error))
        if one.result is not None and other.result is not None:
            assert shown(one.result) == shown(other.result)
            assert other.seconds == other.result.usage.seconds > 0
    assert [outcome.error is None for outcome in theirs] == [True, False, True]


def test_a_conversation_is_streamed_and_a_bad_prompt_raises_in_both_doors() -> None:
    with pytest.raises(InputError, match="outside the vocabulary"):
        list(LLM(ToyPredictor()).stream([99]))

    async def test() -> None:
        async with AsyncLLM("countdown") as llm:
            messages = [{"role": "user", "content": "83,18,75 -> 10"}]
            params = SamplingParams(max_tokens=8, block_length=8, seed=0)
            *_, answer = [event async for event in llm.stream(messages, params)]
            [asked] = await llm.chat(messages, params)
            assert isinstance(answer, RequestOutput)
            assert shown(answer) == shown(asked)
            with pytest.raises(InputError, match="outside the vocabulary"):
                _ = [event async for event in llm.stream([1_000_000])]

    run(test)


def test_leaving_a_synchronous_stream_ends_its_plan() -> None:
    model = Gate()
    model.gate.set()
    llm = LLM(model)
    stream = llm.stream([1, 2], SamplingParams(max_tokens=30, tokens_per_step=1))
    next(stream)
    stream.close()
    assert model.calls == 0
    assert llm.generate("abc", PARAMS)


def test_prompts_pair_up_with_lists_of_candidates() -> None:
    llm = LLM(ToyPredictor())
    with pytest.raises(InputError, match="2 prompts do not pair up with 1 lists of candidates"):
        llm.rank(["a", "b"], [["c"]])
    [first, second] = llm.rank(["a", "b"], [["c", "d"], ["e"]])
    assert shown(first) == shown(llm.rank("a", ["c", "d"]))
    assert shown(second) == shown(llm.rank([1], ["e"])) | {"prompt": "b"}


def test_a_length_controller_begins_its_canvas_anew() -> None:
    async def test() -> None:
        async with AsyncLLM(ToyPredictor()) as llm:
            params = SamplingParams(
                max_tokens=6, length="dise-flexible", length_settings={"max_iterations": 3}
            )
            updates = [event async for event in llm.stream([1, 2], params)][:-1]
            fresh = [
                update for update in updates if isinstance(update, CanvasUpdate) and update.is_fresh
            ]
            assert 2 <= len(fresh) <= 3

    run(test)


def test_an_error_reaches_its_caller_alone() -> None:
    async def test() -> None:
        async with AsyncLLM(Poisoned()) as llm:
            good, bad, wrong = await asyncio.gather(
                llm.score([[1]], [[2]]),
                llm.score([[9]], [[2]]),
                llm.score([[1]], [[99]]),
                return_exceptions=True,
            )
            assert isinstance(good, list)
            assert isinstance(bad, ModelOutputError)
            assert isinstance(wrong, InputError)

    run(test)


def test_a_cancelled_request_frees_its_place_before_the_next_pass() -> None:
    async def test() -> None:
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

    run(test)


def test_a_plan_that_never_ends_is_ended_by_a_time_out_and_disturbs_nobody() -> None:
    async def test() -> None:
        async with AsyncLLM(ToyPredictor()) as llm:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await asyncio.gather(outcomes(llm, endless()), llm.score("a", "b"))
            await eventually(lambda: llm.engine.num_running == 0)
            assert await llm.score("a", "b")

    run(test)


def test_a_plan_that_asks_for_nothing_for_ever_is_refused() -> None:
    def idle() -> Plan[RequestOutput]:
        while True:
            yield []

    async def test() -> None:
        async with AsyncLLM(ToyPredictor()) as llm:
            [outcome] = await outcomes(llm, idle())
            with pytest.raises(PlanError, match="asked for nothing 1000 times in a row"):
                outcome.unwrap()

    run(test)


def test_leaving_a_stream_ends_the_request() -> None:
    async def test() -> None:
        async with AsyncLLM(ToyPredictor()) as llm:
            stream = llm.stream([1, 2], SamplingParams(max_tokens=30, tokens_per_step=1))
            async for _ in stream:
                break
            await stream.aclose()
            await eventually(lambda: llm.engine.num_running == 0)

    run(test)


def test_a_full_queue_refuses_at_once() -> None:
    async def test() -> None:
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

    run(test)


def test_closing_lets_requests_end_and_then_fails_what_is_left() -> None:
    async def test() -> None:
        llm = AsyncLLM(ToyPredictor())
        forever = asyncio.ensure_future(outcomes(llm, endless()))
        answered = asyncio.ensure_future(llm.generate("abc", PARAMS))
        await asyncio.sleep(0)
        started = time.monotonic()
        closing = asyncio.ensure_future(llm.close(grace=0.5))
        await asyncio.sleep(0.05)
        with pytest.raises(ClosedError, match="takes no more requests"):
            await llm.score("a", "b")
        assert await answered
        await closing
        assert 0.4 < time.monotonic() - started < 5
        [outcome] = await forever
        with pytest.raises(ClosedError, match="shut down before the request was done"):
            outcome.unwrap()

    run(test)


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


def test_a_request_waits_for_one_that_is_just_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ToyPredictor()
    question = Read(np.array([1, 2, MASK]), np.array([2]), TokenLogProbs(np.array([3])))
    begun, may_ask = threading.Event(), threading.Event()

    def asking(waits: bool) -> Plan[str]:
        if waits:
            begun.set()
            assert may_ask.wait(60)
        yield [question]
        return "done"

    engine = AsyncEngine(lambda: Engine({"target": model}, EngineConfig()))
    assert engine.submit(asking(False)).result(60)[0] == "done"
    # As if the last step had taken a minute, so that even on a busy machine the other is in time.
    monkeypatch.setattr(async_engine, "GATHER_SECONDS", 60.0)
    monkeypatch.setattr(engine, "_step_seconds", 60.0)
    slow = engine.submit(asking(True))
    assert begun.wait(60)
    quick = engine.submit(asking(False))
    time.sleep(0.1)  # enough for an engine that would not wait to run it alone
    may_ask.set()
    assert {slow.result(60)[0], quick.result(60)[0]} == {"done"}
    assert [len(batch) for batch in model.batches] == [1, 2]
    assert engine.close() == 0


def test_a_request_waits_no_longer_than_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ToyPredictor()
    question = Read(np.array([1, 2, MASK]), np.array([2]), TokenLogProbs(np.array([3])))
    may_ask = threading.Event()

    def asking(waits: bool) -> Plan[str]:
        assert not waits or may_ask.wait(60)
        yield [question]
        return "done"

    monkeypatch.setattr(async_engine, "GATHER_SECONDS", 0.01)
    engine = AsyncEngine(lambda: Engine({"target": model}, EngineConfig()))
    slow, quick = engine.submit(asking(True)), engine.submit(asking(False))
    assert quick.result(60)[0] == "done"
    may_ask.set()
    assert slow.result(60)[0] == "done"
    assert engine.close() == 0
