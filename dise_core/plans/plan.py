"""Plans, and how they compose.

An algorithm is a generator that yields the Reads it needs and is sent their Readings. It
does no I/O, holds no tensors and is unaware of batching, so an engine may run any number
of plans at once, and a framework with its own loop may drive one directly:

    reads = next(plan)
    while True:
        reads = plan.send(my_model(reads))      # ends with StopIteration; its value is the result
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from operator import methodcaller
from typing import Generic, Protocol, TypeVar, runtime_checkable

from dise_core.errors import InputError
from dise_core.plans.reading import Read, Reading

T = TypeVar("T")

READS_AT_ONCE = 256
"""Reads that a plan of many yields at one time: each holds its text in memory."""

Plan = Generator[Sequence[Read], Sequence[Reading], T]
"""An algorithm: yields Reads, is sent one Reading for each in the same order, and returns
a T. Reads that are yielded together may share a batch; those of the same text share one
row of it.
"""


@runtime_checkable
class Timed(Protocol):
    """A result that tells how long its plan took."""

    def timed(self, seconds: float) -> object: ...


@dataclass(slots=True, eq=False)
class Running(Generic[T]):
    """A plan under way: the Reads that it waits for, and in the end its result."""

    plan: Plan[T]
    reads: Sequence[Read] = ()
    is_done: bool = False
    result: T = field(init=False)

    def advance(self, step: Callable[[Plan[T]], Sequence[Read]]) -> None:
        """Run it to its next Reads, or to its end. Raises what the plan raises."""
        try:
            self.reads = step(self.plan)
        except StopIteration as stop:
            self.reads, self.result, self.is_done = (), stop.value, True


def one_round(waiting: Sequence[Running[T]]) -> Plan[None]:
    """Return a plan that joins plans' Reads; each gets its readings, or the error."""
    try:
        readings = yield [read for running in waiting for read in running.reads]
    except Exception as error:
        for running in waiting:
            running.advance(methodcaller("throw", error))
        return
    start = 0
    for running in waiting:
        stop = start + len(running.reads)
        running.advance(methodcaller("send", readings[start:stop]))
        start = stop


@contextmanager
def started(plans: Iterable[Plan[T]]) -> Iterator[list[Running[T]]]:
    """Start plans, in order; close them all at the end, even where closing one raises."""
    with ExitStack() as stack:
        all_running = [Running(plan) for plan in plans]
        for running in all_running:
            stack.callback(running.plan.close)
        for running in all_running:
            running.advance(next)
        yield all_running


def gather(*plans: Plan[T]) -> Plan[list[T]]:
    """Return a plan that runs plans side by side, joining their reads; its results are in
    order. If one raises, the others are closed; an error thrown into it is raised in each
    that waits.
    """
    with started(plans) as all_running:
        while waiting := [running for running in all_running if not running.is_done]:
            yield from one_round(waiting)
    return [running.result for running in all_running]


def answer_by(
    plan: Plan[T], answer: Callable[[Sequence[Read]], Plan[Sequence[Reading]]]
) -> Plan[T]:
    """Return a plan whose Reads other plans answer. Their errors are thrown into it."""
    with started([plan]) as [running]:
        while not running.is_done:
            try:
                readings = yield from answer(running.reads)
            except Exception as error:
                running.advance(methodcaller("throw", error))
            else:
                running.advance(methodcaller("send", readings))
    return running.result


def mapped(plan: Plan[T], change: Callable[[Read], Read]) -> Plan[T]:
    """Return the plan with each of its Reads changed."""

    def answer(reads: Sequence[Read]) -> Plan[Sequence[Reading]]:
        return (yield [change(read) for read in reads])

    return answer_by(plan, answer)


def salted(plan: Plan[T], cache_salt: str | None) -> Plan[T]:
    """Return the plan with that salt in its Reads; None leaves them as they are."""
    if cache_salt is None:
        return plan
    return mapped(plan, lambda read: replace(read, cache_salt=cache_salt))


OF_A_TEXT = frozenset({None, "prompt", "response", "messages", "input", "token_ids"})
"""Parameters of errors about one text of several, not about shared options."""


def numbered(plans: list[Plan[T]], noun: str) -> list[Plan[T]]:
    """Return the plans; each of several begins an InputError with "prompt 2: "."""
    if len(plans) == 1:
        return plans
    return [_place(plan, f"{noun} {number}") for number, plan in enumerate(plans, start=1)]


def _place(plan: Plan[T], place: str) -> Plan[T]:
    try:
        return (yield from plan)
    except InputError as error:
        if error.parameter not in OF_A_TEXT:
            raise
        raise error.at(place) from error


def drive(plan: Plan[T], read: Callable[[Sequence[Read]], Sequence[Reading]]) -> T:
    """Run a plan to its end with `read` answering its Reads; return its result."""
    with started([plan]) as [running]:
        while not running.is_done:
            running.advance(methodcaller("send", read(running.reads)))
    return running.result
