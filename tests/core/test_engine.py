"""The engine: limits, order, isolation."""

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from pydantic import BaseModel, model_serializer

from dise_core import (
    CacheHint,
    CacheSlot,
    EngineConfig,
    Plan,
    Read,
    Reading,
    TokenLogProbs,
    TopLogProbs,
)
from dise_core.engine import Caller, Engine, scheduler
from dise_core.engine import engine as engines
from dise_core.engine.request import Request
from dise_core.engine.scheduler import Scheduler
from dise_core.errors import InputError, ModelError, PlanError, TooLongError, UnreachableError
from dise_core.testing.toy_model import ToyPredictor


def read_of(ids: Sequence[int]) -> Read:
    return Read(np.array(ids), np.array([0]), TokenLogProbs(np.array([1])))


def ask(*rounds: Sequence[Read]) -> Plan[list[float]]:
    heard: list[float] = []
    for reads in rounds:
        readings = yield reads
        heard.extend(float(reading.logprobs[0]) for reading in readings)
    return heard


def engine_of(
    predictor: ToyPredictor, max_num_seqs: int = 64, max_batch_tokens: int = 1000
) -> Engine:
    return Engine(
        {"target": predictor},
        EngineConfig(max_num_seqs=max_num_seqs, max_batch_tokens=max_batch_tokens),
    )


def test_plans_are_taken_as_room_appears_and_leave_at_the_step_that_ends_them() -> None:
    predictor, taken = ToyPredictor(), list[int]()

    def plans() -> Iterator[Plan[list[float]]]:
        for number, rounds in enumerate([1, 3, 1, 1]):
            taken.append(number)
            yield ask(*[[read_of([number])]] * rounds)

    outcomes = engine_of(predictor, max_num_seqs=2).run(plans())
    assert next(outcomes).index == 0
    assert taken == [0, 1]
    assert len(list(outcomes)) == 3
    batches = [[int(ids[0]) for ids in batch] for batch in predictor.batches]
    assert batches == [[0, 1], [1, 2], [1, 3]]


class Failing(ToyPredictor):
    """Raises an error at its first call, and then answers."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error: BaseException | None = error

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        super().read(reads)
        if self.error is None:
            return ToyPredictor().read(reads)
        error, self.error = self.error, None
        raise error


def test_ctrl_c_in_a_batch_ends_the_run_and_leaves_the_engine_usable() -> None:
    predictor, closed = Failing(KeyboardInterrupt()), []

    def watched(number: int) -> Plan[list[float]]:
        try:
            return (yield from ask([read_of([number])]))
        finally:
            closed.append(number)

    engine = engine_of(predictor)
    with pytest.raises(KeyboardInterrupt):
        list(engine.run(watched(number) for number in range(3)))
    assert len(predictor.batches) == 1
    assert sorted(closed) == [0, 1, 2]
    assert all(outcome.error is None for outcome in engine.run([ask([read_of([1])])]))


class Interrupted(BaseModel):
    """Ctrl-C comes while pydantic writes it, and pydantic makes an error of its own of it."""

    @model_serializer
    def _record(self) -> dict[str, str]:
        signal.raise_signal(signal.SIGINT)
        return {}


class Writing(ToyPredictor):
    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        Interrupted().model_dump()
        return super().read(reads)


def test_ctrl_c_that_pydantic_wraps_ends_the_run_of_a_plan_and_of_a_model() -> None:
    def writing() -> Plan[dict[str, str]]:
        yield from ask([read_of([1])])
        return Interrupted().model_dump()

    for predictor, plan in ((ToyPredictor(), writing()), (Writing(), ask([read_of([1])]))):
        with pytest.raises(KeyboardInterrupt):
            list(engine_of(predictor).run([plan]))


@pytest.mark.parametrize(
    ("error", "num_calls", "told"),
    [(UnreachableError("gone"), 1, "gone"), (SystemExit("killed"), 4, "None")],
)
def test_rows_are_asked_again_one_by_one_unless_the_model_is_out_of_reach(
    error: BaseException, num_calls: int, told: str
) -> None:
    predictor = Failing(error)
    outcomes = list(engine_of(predictor).run(ask([read_of([number])]) for number in range(3)))
    assert len(predictor.batches) == num_calls
    assert [str(outcome.error) for outcome in outcomes] == [told] * 3


TEXT = np.array([0])


def no_answer_to(ids: Sequence[int], predictor: str = "target") -> list[Read]:
    text = np.array(ids, dtype=np.int64)
    return [Read(text, np.zeros(0, np.int64), TopLogProbs(1), predictor=predictor)]


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        (no_answer_to([]), InputError, "the text is empty"),
        (no_answer_to([12]), InputError, "token id 12 at position 0 is outside the vocabulary: "),
        (no_answer_to([0, -1]), InputError, "token id -1 at position 1"),
        ([Read(TEXT, TEXT[:1], TopLogProbs(1, (3, 12)))], InputError, "token id 12 at position 1"),
        ([Read(TEXT, TEXT[:1], TopLogProbs(1, targets=TEXT - 1))], InputError, "token id -1"),
        ([Read(TEXT, TEXT[:1], TokenLogProbs(TEXT + 12))], InputError, "token id 12"),
        (no_answer_to([0] * 16), TooLongError, "16 tokens is longer than the model's limit of 15"),
        (no_answer_to([0] * 21), TooLongError, "more than max_batch_tokens=20; raise that limit"),
        (no_answer_to([1], "judge"), PlanError, "no predictor 'judge' is loaded. Loaded: target"),
        *((wrong, PlanError, "must yield a list of Reads") for wrong in (None, 5, [5], {}, "ab")),
    ],
)
def test_what_cannot_be_asked_fails_its_own_request(
    asked: Sequence[Read], error: type[Exception], text: str
) -> None:
    engine = engine_of(ToyPredictor(15), max_batch_tokens=20)
    outcomes = engine.run([ask([read_of([1])]), ask(asked)])
    good, bad = sorted(outcomes, key=lambda outcome: outcome.index)
    assert good.error is None
    with pytest.raises(error, match=text):
        bad.unwrap()


class Faulty(ToyPredictor):
    """Fails for texts that start with 9, and leaves one unanswered beside those with 7."""

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        first = {int(read.token_ids[0]) for read in reads}
        if 9 in first:
            raise RuntimeError("kernel failed")
        readings = super().read(reads)
        return readings[:-1] if 7 in first else readings


@pytest.mark.parametrize(
    ("first", "error", "text"),
    [(9, PlanError, "RuntimeError: kernel failed"), (7, ModelError, "answered 0 of 1 reads")],
)
def test_a_model_that_fails_on_one_text_fails_that_request_alone(
    first: int, error: type[Exception], text: str
) -> None:
    plans = [ask([read_of([i])]) for i in (1, first, 2)]
    outcomes = sorted(engine_of(Faulty()).run(plans), key=lambda outcome: outcome.index)
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    with pytest.raises(error, match=text):
        outcomes[1].unwrap()


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (lambda r: replace(r, token_ids=r.token_ids[:, ::-1]), "must end with `ids`, then the pos"),
        (lambda r: replace(r, token_ids=r.token_ids[:, :-1]), r"numpy array, int64 \[1, 4\]"),
        (
            lambda r: replace(r, confidences=np.zeros(0)),
            r"confidences .* numpy array, float64 \[1\]",
        ),
        (lambda r: replace(r, confidences=r.confidences * np.nan), "confidences must be numbers"),
    ],
)
def test_what_is_told_of_named_tokens_is_checked(
    spoil: Callable[[Reading], Reading], rule: str
) -> None:
    class Spoiling(ToyPredictor):
        def read(self, reads: Sequence[Read]) -> list[Reading]:
            return [spoil(reading) for reading in super().read(reads)]

    def plan() -> Plan[Sequence[Reading]]:
        return (yield [Read(TEXT, TEXT, TopLogProbs(1, (3, 4), TEXT + 5, with_entropy=True))])

    [sound], [spoiled] = (engine_of(model).run([plan()]) for model in (ToyPredictor(), Spoiling()))
    assert sound.error is None
    with pytest.raises(ModelError, match=rule):
        spoiled.unwrap()


@pytest.mark.parametrize("bad", [[9], [12], [0] * 41])
@pytest.mark.parametrize("bad_comes_first", [True, False])
def test_a_plan_may_handle_the_error_of_its_read_and_ask_again(
    bad: list[int], bad_comes_first: bool
) -> None:
    def careful() -> Plan[str]:
        reads = [read_of([1]), read_of([3]), read_of(bad)]
        try:
            yield reads[::-1] if bad_comes_first else reads
        except (PlanError, InputError):
            yield [read_of([2])]
        return "recovered"

    [outcome] = engine_of(Faulty()).run([careful()])
    assert outcome.unwrap() == "recovered"


def test_a_plan_may_ask_for_less_where_a_text_was_too_long() -> None:
    def plan() -> Plan[str]:
        try:
            yield [read_of([1] * 20)]
        except TooLongError:
            yield [read_of([1] * 5)]
        return "asked for less"

    outcomes = [*engine_of(ToyPredictor(), max_batch_tokens=10).run([plan(), plan()])]
    assert [outcome.unwrap() for outcome in outcomes] == ["asked for less"] * 2


def test_closing_the_run_closes_the_plans_under_way() -> None:
    closed = []

    def plan(rounds: int) -> Plan[None]:
        try:
            for _ in range(rounds):
                yield [read_of([1])]
        finally:
            closed.append(rounds)

    outcomes = engine_of(ToyPredictor()).run([plan(1), plan(50)])
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert closed == [1, 50]


class Room:
    """Of a GPU's cache, which holds all texts; a window counts as half of its text."""

    num_free = 0

    def missing(self, hint: CacheHint, length: int) -> int:
        return 0

    def counted(self, hint: CacheHint, length: int) -> int:
        return length if hint.window is None else length // 2


def test_windows_of_a_lone_caller_fill_a_batch_if_the_last_one_took_no_time() -> None:
    scheduler = Scheduler(64, 16384, {"target": Room()})
    windows, texts = (
        [replace(read_of(range(1000)), cache=CacheHint(CacheSlot(), window)) for _ in range(20)]
        for window in ((0, 32), None)
    )
    asks = [Request(ask(reads)) for reads in (windows, texts)]
    for request in asks:
        request.start()

    def count(request: Request, seconds: float) -> int:
        batch = scheduler.schedule([request])
        scheduler.ran(seconds)
        return len(batch)

    of_windows, of_texts = asks
    assert [count(of_windows, seconds) for seconds in (0.01, 10, 0.01)] == [8, 20, 8]
    assert [count(of_texts, 0.01) for _ in range(2)] == [4, 4]  # their time depends on more
    assert count(of_windows, 0.01) == 20


class Clock:
    """Tells the seconds that were spent on purpose."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


PASS = 0.2
"""Seconds of a pass of the timed engine."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (engines, scheduler):
        monkeypatch.setattr(module, "perf_counter", clock)
    return clock


class Timed(ToyPredictor):
    """Takes a while for each pass."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        self.clock.now += PASS
        return super().read(reads)


def computing(clock: Clock, seconds: float, num_rounds: int) -> Plan[None]:
    """A plan that takes that long between its reads, as under a large constraint."""
    for _ in range(num_rounds):
        yield [read_of([1])]
        clock.now += seconds


def started(engine: Engine, caller: Caller, plans: Sequence[Plan[None]]) -> list[Request]:
    requests = [engine.request(plan, caller) for plan in plans]
    for request in requests:
        request.start()
    return requests


@pytest.mark.parametrize("seconds", [0.01, 0.05, 1.0, 30.0])
def test_plans_that_compute_much_delay_those_of_another_caller_by_half_and_all_end(
    clock: Clock, seconds: float
) -> None:
    engine = engine_of(Timed(clock))
    many = started(engine, Caller(), [computing(clock, seconds, 3) for _ in range(20)])
    [small] = started(engine, Caller(), [computing(clock, 0.0, 1000)])
    begun, num_steps = clock.now, 0
    while not small.is_finished:
        engine.step([request for request in [*many, small] if not request.is_finished])
        num_steps += 1
    assert num_steps == 1000, "its own plan goes on behind each pass"
    spent = min(1000 * PASS / 2, 60 * seconds)
    assert 0.9 * spent - seconds <= clock.now - begun - 1000 * PASS <= spent + seconds
    while left := [request for request in many if not request.is_finished]:
        engine.step(left)
    assert not any(request.error for request in many)


def test_plans_that_compute_much_leave_others_an_early_turn_and_a_run_alone_none(
    clock: Clock,
) -> None:
    def first_step(caller: Caller) -> tuple[float, int]:
        engine, begun = engine_of(Timed(clock)), clock.now
        requests = started(engine, caller, [computing(clock, 0.03, 1) for _ in range(20)])
        engine.step(requests)
        return round(clock.now - begun - PASS, 2), sum(each.is_finished for each in requests)

    assert first_step(Caller()) == (0.21, 7), "as long as the pass took, and the last one's rest"
    assert first_step(Caller(is_alone=True)) == (0.6, 20)


def test_all_plans_of_a_lone_caller_go_on_before_its_next_pass_unless_others_come(
    clock: Clock,
) -> None:
    engine, num_rounds = engine_of(Timed(clock)), 3
    many = started(engine, Caller(), [computing(clock, 0.03, num_rounds) for _ in range(20)])
    begun = clock.now
    while left := [request for request in many if not request.is_finished]:
        engine.step(left)
    assert clock.now - begun == pytest.approx(num_rounds * (PASS + 20 * 0.03))
    many = started(engine, Caller(), [computing(clock, 0.03, 1) for _ in range(20)])
    engine.step(many)
    [small] = started(engine, Caller(), [computing(clock, 0.0, 1)])
    engine.step([*(request for request in many if not request.is_finished), small])
    assert small.is_finished
    assert not all(request.is_finished for request in many)


def test_a_caller_owes_others_no_tokens_of_batches_that_it_had_alone() -> None:
    scheduler = Scheduler(64, 1000)
    many, few = (
        Request(ask([read_of(range(first, first + 300)) for first in range(9)])) for _ in range(2)
    )
    for request in (many, few):
        request.start()
    assert [len(scheduler.schedule([many])) for _ in range(20)] == [3] * 20
    assert {request for request, _ in scheduler.schedule([many, few])} == {many, few}


def test_a_caller_that_comes_back_owes_no_time_of_plans_that_have_ended(clock: Clock) -> None:
    engine, caller = engine_of(Timed(clock)), Caller()
    [other] = started(engine, Caller(), [computing(clock, 0.0, 9)])
    [slow] = started(engine, caller, [computing(clock, 30.0, 1)])
    engine.step([slow, other])
    assert slow.is_finished
    engine.step([other])
    [quick] = started(engine, caller, [computing(clock, 0.0, 1)])
    engine.step([quick, other])
    assert quick.is_finished
