"""One running plan: the reads it waits for, the readings it has, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import current_thread, main_thread
from typing import Any

from dise_core.decisions import DecisionOutput
from dise_core.engine.caller import Caller
from dise_core.errors import DiseError, PlanError, error_line, shown
from dise_core.outputs import RequestOutput
from dise_core.reading import Plan, Read, Reading
from dise_core.rows import Row, distinct_rows

MAX_EMPTY_QUESTIONS = 1000
"""Empty lists in a row that a plan may yield before it fails."""


class Request:
    """One running plan, with all its state; `index` is its index in the caller's order.

    prepared: returns a Read of the plan as the engine runs it.
    """

    __slots__ = (
        "_asked",
        "_plan",
        "_prepared",
        "_readings",
        "caller",
        "error",
        "finished_at",
        "index",
        "reads",
        "result",
        "rows",
        "started_at",
    )

    def __init__(
        self,
        index: int,
        plan: Plan[object],
        caller: Caller | None = None,
        prepared: Callable[[Read], Read] = lambda read: read,
    ) -> None:
        self.index = index
        self.caller = caller or Caller()
        self.started_at = time.perf_counter()
        self.finished_at: float | None = None
        self.result: Any = None
        self.error: DiseError | None = None
        self.rows: list[Row] = []
        """Rows that wait for a forward pass."""
        self._plan, self._prepared = plan, prepared
        self.reads: Sequence[Read] = ()
        """The Reads that the plan yielded last."""
        self._asked: list[Read] = []
        self._readings: dict[int, Reading] = {}

    @property
    def is_finished(self) -> bool:
        """Whether the plan has returned or failed."""
        return self.finished_at is not None

    @property
    def seconds(self) -> float:
        """The seconds from its start to its end, or until now."""
        return (self.finished_at or time.perf_counter()) - self.started_at

    def admit(self) -> None:
        """Count its time from here."""
        self.started_at = time.perf_counter()

    def start(self) -> None:
        """Run the plan up to its first reads. Its time counts from here."""
        self.admit()
        self._advance(lambda: next(self._plan))

    def reads_of(self, row: Row) -> list[Read]:
        """Return the Reads that the row answers, as the engine runs them."""
        return [self._asked[index] for index in row.reads]

    def settle(self, row: Row, answer: Sequence[Reading] | Exception) -> None:
        """Accept the outcome of one row: its Readings, or an error, which is raised inside the plan
        at its `yield`.

        Once all rows are answered, the plan runs up to its next reads. A row that the plan no
        longer waits for, because another row failed, is ignored.
        """
        if row not in self.rows:
            return
        self.rows.remove(row)
        if isinstance(answer, Exception):
            self._advance(lambda: self._plan.throw(answer))
            return
        if not self.rows and not self._readings:  # the only row answers all Reads, in their order
            self._advance(lambda: self._plan.send(answer))
            return
        self._readings.update(zip(row.reads, answer, strict=True))
        if not self.rows:
            answers = [self._readings[index] for index in range(len(self.reads))]
            self._advance(lambda: self._plan.send(answers))

    def close(self) -> None:
        """End the plan unfinished, and let go of its reads. What it raises then is lost: its caller
        is gone, or has been told.
        """
        self.reads, self._asked, self.rows = (), [], []
        try:
            self._plan.close()
        except BaseException as error:
            failure(error)

    def _advance(self, step: Callable[[], object]) -> None:
        """Run the plan to its next reads. Whatever it raises ends this request and no other."""
        self.rows = []
        self._readings = {}
        try:
            for _ in range(MAX_EMPTY_QUESTIONS):
                if reads := _checked(step()):
                    break
                step = lambda: self._plan.send([])  # noqa: E731
            else:
                raise PlanError(f"a plan asked for nothing {MAX_EMPTY_QUESTIONS} times in a row")
            self.reads, self._asked = reads, [self._prepared(read) for read in reads]
            rows = distinct_rows(self._asked)
            self.caller.spend(rows)
            self.rows = rows
        except StopIteration as stop:
            self.finished_at = time.perf_counter()
            self.result = _timed(stop.value, self.seconds)
        except BaseException as error:
            self.error = failure(error)
            self.finished_at = time.perf_counter()
            self.close()


def _timed(result: object, seconds: float) -> object:
    """Return the result, with the seconds filled in if it is an answer to a user."""
    if not isinstance(result, RequestOutput | DecisionOutput):
        return result
    return replace(result, usage=replace(result.usage, seconds=seconds))


def _checked(reads: object) -> Sequence[Read]:
    # Asked of a list first: whether something is a Sequence takes ten times as long to tell.
    if not isinstance(reads, (list, Sequence)) or not all(isinstance(read, Read) for read in reads):
        raise PlanError(f"a plan must yield a list of Reads, not {shown(reads)}")
    return reads


def failure(error: BaseException) -> DiseError:
    """Return what a plan or a predictor raised as an error of ours: one that is not as a PlanError
    that names it and keeps it as its cause.

    A plugin may raise anything, SystemExit and the like too, and ends its own request by it. Only
    Ctrl-C, which Python raises in the main thread, goes on.
    """
    if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
        raise error
    if isinstance(error, DiseError):
        return error
    explained = PlanError(f"{error_line(error):.500}")
    explained.__cause__ = error
    return explained
