"""The engine in a background thread: any thread submits plans and may cancel."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar

from dise_core.engine.caller import CALLER_SALT, Caller
from dise_core.engine.contract import failure
from dise_core.engine.engine import Engine
from dise_core.engine.request import Request
from dise_core.errors import ClosedError, DiseError, OverloadedError, PlanError
from dise_core.plans.plan import Plan
from dise_core.plans.reading import Read

T = TypeVar("T")

Watch = Callable[[Sequence[Read]], None]
"""Called in the engine's thread with each list of Reads that a plan yields."""


@dataclass(slots=True, eq=False)
class _Ticket:
    """One submitted plan."""

    request: Request
    future: Future[Any]
    watch: Watch | None
    is_starting: bool = False
    is_started: bool = False
    last_reads: Sequence[Read] = field(default=())

    def show(self) -> None:
        """Pass new Reads to the watcher once. A watcher that raises is dropped."""
        if self.watch is None or self.request.reads is self.last_reads:
            return
        self.last_reads = self.request.reads
        try:
            self.watch(self.last_reads)
        except BaseException:
            self.watch = None

    def settle(self, error: DiseError | None = None) -> None:
        """Tell how the request has ended, or that it ends unfinished by this error."""
        self.drop()
        if self.future.done() or not self.future.set_running_or_notify_cancel():
            return
        if (error := error or self.request.error) is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result((self.request.result, self.request.seconds))

    def drop(self) -> None:
        """End the request, and let go of what was shown, which keeps what its texts cached."""
        self.request.close()
        self.last_reads, self.watch = (), None


CLOSED = "the engine is shutting down and takes no more requests"

GATHER_SECONDS = 0.2
"""The longest time that a request waits for others that are just starting."""

NUM_STARTERS = 2
"""Threads that start plans: a long start must not hold up all others."""

LOOK_SECONDS = 1.0
"""How often to look for the cancelled while nothing runs and some wait."""


class AsyncEngine:
    """Runs plans in one thread; at most `max_waiting` queue. Callers take turns, and the
    requests of one caller are first come, first served.

    Plans start, that is read their prompts, in threads of their own, so that a long one
    delays no pass. Cancelling a future ends its request before the next pass. Methods are
    thread-safe.
    """

    def __init__(self, load: Callable[[], Engine], max_waiting: int = 1024) -> None:
        """Call `load` in the engine's thread and start serving. Raises what `load`
        raises.

        Models are loaded in the thread that runs them: OpenMP keeps a pool of workers for
        each calling thread, and the idle pool of another thread slows down every later
        one.
        """
        self.max_waiting = max_waiting
        """The most requests that wait."""
        self._waiting: deque[_Ticket] = deque()
        self._running: list[_Ticket] = []
        self._changed = threading.Condition()
        self._is_closing = False
        self._is_aborting = False
        self._num_cut_off = 0
        self._step_seconds = 0.0
        self._death: DiseError | None = None
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._to_start: SimpleQueue[_Ticket | None] = SimpleQueue()
        loaded: Future[Engine] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(load, loaded), name="dise-engine", daemon=True
        )
        self._thread.start()
        self._engine: Engine | None = loaded.result()
        for _ in range(NUM_STARTERS):
            # A daemon: for the threads of a ThreadPoolExecutor Python waits before the
            # process ends, and a start may never end.
            threading.Thread(target=self._start_plans, name="dise-start", daemon=True).start()

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def death(self) -> DiseError | None:
        """Why the thread ended on its own; None while it serves, and after `close`."""
        return self._death

    def submit(
        self, plan: Plan[T], watch: Watch | None = None, caller: Caller | None = None
    ) -> Future[tuple[T, float]]:
        """Return the future of the plan's result and the seconds from its admission to
        its end.

        caller: whose plan it is; plans of one caller share its turns. None is a caller of
        its own.
        Raises OverloadedError if max_waiting requests wait already, ClosedError once the
        engine is closing, and what `death` says once it has died.
        """
        future: Future[tuple[T, float]] = Future()
        with self._changed:
            if self._death is not None:
                raise self._death
            if self._is_closing or self._engine is None:
                raise ClosedError(CLOSED)
            num_waiting = len(self._waiting)
            if num_waiting >= self.max_waiting:
                num_waiting = sum(not ticket.future.cancelled() for ticket in self._waiting)
            if num_waiting >= self.max_waiting:
                raise OverloadedError(
                    f"{self.max_waiting} requests are waiting already; try again later"
                )
            ticket = _Ticket(self._engine.request(plan, caller), future, watch)
            self._waiting.append(ticket)
            self._changed.notify()
        self._to_start.put(ticket)
        return future

    def call(self, work: Callable[[], T]) -> Future[T]:
        """Return the future of what `work` returns in the engine's thread, between steps.
        Raises ClosedError once the engine is closing, or has died.
        """
        future: Future[T] = Future()
        with self._changed:
            if self._is_closing or self._death is not None:
                raise ClosedError(CLOSED)
            self._calls.append((work, future))
            self._changed.notify()
        return future

    def close(self, grace: float = 30.0) -> int:
        """Refuse new requests, wait `grace` seconds, fail and count the others."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(grace)
        with self._changed:
            self._is_aborting = True
            self._changed.notify()
        self._thread.join()
        for _ in range(NUM_STARTERS):
            self._to_start.put(None)
        self._engine = None
        return self._num_cut_off

    def _run(self, load: Callable[[], Engine], loaded: Future[Engine]) -> None:
        try:
            engine = load()
        except BaseException as error:
            loaded.set_exception(error)
            return
        loaded.set_result(engine)
        try:
            self._loop(engine)
        except BaseException as error:
            death = ClosedError(f"the engine has died and must be started anew: {failure(error)}")
            death.__cause__ = error
            self._death = death
            self._end(death)

    def _loop(self, engine: Engine) -> None:
        while self._admit(engine.max_running):
            if self._is_aborting:
                self._end(ClosedError("the engine was shut down before the request was done"))
                return
            if self._calls:
                _answer(*self._calls.popleft())
                continue
            start = time.monotonic()
            try:
                engine.step([ticket.request for ticket in self._running])
            except BaseException as error:
                self._fail_running(PlanError(f"the engine failed: {failure(error)}"))
            self._step_seconds = time.monotonic() - start
            self._leave()

    def _start_plans(self) -> None:
        """Start plans in their order. One that ends as it starts needs no turn."""
        while (ticket := self._to_start.get()) is not None:
            with self._changed:
                ticket.is_starting = not ticket.future.cancelled()
            if ticket.is_starting:
                CALLER_SALT.set(ticket.request.caller.cache_salt)
                ticket.request.start()
            with self._changed:
                ticket.is_starting, ticket.is_started = False, True
                is_over = ticket.request.is_finished and ticket in self._waiting
                if is_over:
                    self._waiting.remove(ticket)
                self._changed.notify()
            if is_over:
                ticket.settle()
            del ticket  # it would live until the next one comes

    def _admit(self, max_running: int) -> bool:
        """Wait for work and admit what fits; False once closing with nothing left."""
        with self._changed:
            while not (self._running or self._is_aborting or self._calls or self._started()):
                if self._is_closing and not self._waiting:
                    return False
                self._changed.wait(LOOK_SECONDS if self._waiting else None)
                for cancelled in self._forget_cancelled():
                    cancelled.drop()
            if not self._running:
                self._gather(max_running)
            gone = self._forget_cancelled()
            running = Counter(ticket.request.caller for ticket in self._running)
            started = self._started()
            while (ticket := self._next(started, running, max_running)) is not None:
                ticket.request.admit()
                running[ticket.request.caller] += 1
                self._running.append(ticket)
                started.remove(ticket)
                self._waiting.remove(ticket)
        for ticket in gone:
            ticket.drop()
        self._leave()
        return True

    def _gather(self, max_running: int) -> None:
        """Wait for starting requests, at most as long as the last step took."""
        until = time.monotonic() + min(self._step_seconds, GATHER_SECONDS)
        while not self._is_aborting and len(self._started()) < min(len(self._waiting), max_running):
            if (seconds := until - time.monotonic()) <= 0:
                return
            self._changed.wait(seconds)

    def _forget_cancelled(self) -> list[_Ticket]:
        """Remove and return cancelled requests, except those just starting."""
        cancelled: list[_Ticket] = []
        waiting, self._waiting = self._waiting, deque()
        for ticket in waiting:
            is_gone = ticket.future.cancelled() and not ticket.is_starting
            (cancelled if is_gone else self._waiting).append(ticket)
        return cancelled

    def _started(self) -> list[_Ticket]:
        return [ticket for ticket in self._waiting if ticket.is_started]

    def _next(
        self, started: Sequence[_Ticket], running: Counter[Caller], max_running: int
    ) -> _Ticket | None:
        """Return the oldest started request of the caller with the fewest running ones,
        if there is room: fewer than `max_running` run, or this caller has none and fewer
        callers have.
        """
        if not started or len(running) >= max_running:
            return None
        ticket = min(started, key=lambda ticket: running[ticket.request.caller])
        has_room = len(self._running) < max_running or not running[ticket.request.caller]
        return ticket if has_room else None

    def _leave(self) -> None:
        staying = []
        for ticket in self._running:
            if ticket.future.cancelled():
                ticket.drop()
            elif ticket.request.is_finished:
                ticket.settle()
            else:
                ticket.show()
                staying.append(ticket)
        self._running = staying

    def _end(self, error: DiseError) -> None:
        """Fail all waiting and running requests, and all calls."""
        with self._changed:
            self._running += [ticket for ticket in self._waiting if ticket not in self._running]
            self._waiting.clear()
            for _, future in self._calls:
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)
            self._calls.clear()
        self._num_cut_off = sum(not ticket.future.done() for ticket in self._running)
        self._fail_running(error)

    def _fail_running(self, error: DiseError) -> None:
        for ticket in self._running:
            ticket.settle(error)
        self._running = []


def _answer(work: Callable[[], T], future: Future[T]) -> None:
    """Set a future, unless it is cancelled, to what `work` returns or raises."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
