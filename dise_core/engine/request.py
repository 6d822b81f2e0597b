"""One running plan: the reads it waits for, the readings it has, and how it ended."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dise_core.engine.caller import Caller
from dise_core.engine.contract import MAX_EMPTY_QUESTIONS, failure
from dise_core.errors import DiseError, InputError, PlanError
from dise_core.plans.plan import Plan, Timed
from dise_core.plans.reading import Read, Reading, checked_reads
from dise_core.plans.rows import Row, distinct_rows


@dataclass(slots=True, eq=False)
class Request:
    """A running plan with all its state. prepared: makes its Reads those that run; rows:
    wait for a forward pass; reads: what the plan yielded last.
    """

    plan: Plan[object]
    caller: Caller = field(default_factory=Caller)
    prepared: Callable[[Read], Read] = lambda read: read
    started_at: float = field(default_factory=time.perf_counter)
    finished_at: float | None = None
    result: Any = None
    error: DiseError | None = None
    rows: list[Row] = field(default_factory=list)
    reads: Sequence[Read] = ()
    _prepared_reads: list[Read] = field(default_factory=list)
    _readings: dict[int, Reading] = field(default_factory=dict)
    _failure: Exception | None = None

    @property
    def is_finished(self) -> bool:
        return self.finished_at is not None

    @property
    def is_answered(self) -> bool:
        """Whether the plan can go on: none of its rows waits any more."""
        return not self.rows and not self.is_finished

    @property
    def seconds(self) -> float:
        return (self.finished_at or time.perf_counter()) - self.started_at

    def admit(self) -> None:
        self.started_at = time.perf_counter()

    def start(self) -> None:
        """Run the plan up to its first reads. Its time counts from here."""
        self.admit()
        self._advance(lambda: next(self.plan))

    def reads_of(self, row: Row) -> list[Read]:
        return [self._prepared_reads[index] for index in row.reads]

    def settle(self, row: Row, answer: Sequence[Reading] | Exception) -> None:
        """Accept the outcome of one row. A row that the plan no longer waits for, because
        another row failed, is ignored.
        """
        if row not in self.rows:
            return
        self.rows.remove(row)
        if isinstance(answer, Exception):
            self.rows, self._failure = [], answer
        else:
            self._readings.update(zip(row.reads, answer, strict=True))

    def go_on(self) -> None:
        """Run the plan, which is answered, up to its next reads; the error of a row is
        raised inside it.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            self._advance(lambda: self.plan.throw(failure))
        else:
            answers = [self._readings[index] for index in range(len(self.reads))]
            self._advance(lambda: self.plan.send(answers))

    def close(self) -> None:
        """End the plan unfinished. Nobody waits for what it then raises."""
        self.reads, self._prepared_reads, self.rows = (), [], []
        try:
            self.plan.close()
        except BaseException as error:
            failure(error)

    def _advance(self, step: Callable[[], object]) -> None:
        """Run the plan to its next reads. What it raises ends this request alone."""
        self.rows = []
        self._readings = {}
        try:
            for _ in range(MAX_EMPTY_QUESTIONS):
                if reads := checked_reads("a plan", step()):
                    break
                step = lambda: self.plan.send([])  # noqa: E731
            else:
                raise PlanError(f"a plan asked for nothing {MAX_EMPTY_QUESTIONS} times in a row")
            self.reads, self._prepared_reads = reads, [self.prepared(read) for read in reads]
            rows = distinct_rows(self._prepared_reads)
            self.caller.spend(rows)
            self.rows = rows
        except StopIteration as stop:
            self.reads, self._prepared_reads = (), []  # what they cached is free
            self.finished_at = time.perf_counter()
            result = stop.value
            self.result = result.timed(self.seconds) if isinstance(result, Timed) else result
        except BaseException as error:
            self.error = failure(error)
            if isinstance(error, InputError):
                # The frames of an error that is kept would keep what the texts of its
                # batch cached.
                error.__traceback__ = None
            self.finished_at = time.perf_counter()
            self.close()
