"""The engine in a background thread: plans may be submitted from any thread while others run, and
end when their caller cancels.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dise_core.engine.engine import Engine
from dise_core.engine.request import Request
from dise_core.errors import ClosedError, DiseError, OverloadedError, PlanError
from dise_core.reading import Plan, Read

T = TypeVar("T")

Watch = Callable[[Sequence[Read]], None]
"""Called in the engine's thread with each list of Reads that a plan yields."""


@dataclass(slots=True, eq=False)
class _Ticket:
    """One submitted plan: the request that runs it, its caller's future, and its watcher."""

    request: Request
    future: Future[Any]
    watch: Watch | None
    seen: Sequence[Read] = field(default=())

    def show(self) -> None:
        """Pass each new list of Reads to the watcher once. A watcher that raises is dropped."""
        if self.watch is None or self.request.reads is self.seen:
            return
        self.seen = self.request.reads
        try:
            self.watch(self.seen)
        except Exception:
            self.watch = None

    def settle(self) -> None:
        """Hand the result or the error to the caller, unless the caller has cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return
        if self.request.error is not None:
            self.future.set_exception(self.request.error)
        else:
            self.future.set_result((self.request.result, self.request.seconds))

    def fail(self, error: DiseError) -> None:
        """End the request with an error that is not its own."""
        self.request.close()
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class AsyncEngine:
    """Runs plans in one thread, first come, first served; at most `max_waiting` queue.

    Cancelling a future ends its request before the next forward pass. All methods are thread-safe.
    """

    def __init__(self, load: Callable[[], Engine], max_waiting: int = 1024) -> None:
        """Call `load` in the engine's thread and start serving. Raises what `load` raises.

        Models are loaded in the thread that runs them: OpenMP keeps a pool of workers for each
        calling thread, and the idle pool of another thread slows down every later one.
        """
        self._max_waiting = max_waiting
        self._waiting: deque[_Ticket] = deque()
        self._running: list[_Ticket] = []
        self._changed = threading.Condition()
        self._is_closing = False
        self._is_aborting = False
        self._num_cut_off = 0
        loaded: Future[Engine] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(load, loaded), name="dise-engine", daemon=True
        )
        self._thread.start()
        loaded.result()

    @property
    def num_running(self) -> int:
        """The number of requests that are running."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """The number of requests that are queued."""
        return len(self._waiting)

    def submit(self, plan: Plan[T], watch: Watch | None = None) -> Future[tuple[T, float]]:
        """Return the future of the plan's result and the seconds from its admission to its end.

        Raises OverloadedError if max_waiting requests are queued already, ClosedError once the
        engine is closing.
        """
        future: Future[tuple[T, float]] = Future()
        with self._changed:
            if self._is_closing:
                raise ClosedError("the engine is shutting down and takes no more requests")
            if len(self._waiting) >= self._max_waiting:
                raise OverloadedError(
                    f"{self._max_waiting} requests are waiting already; try again later"
                )
            self._waiting.append(_Ticket(Request(0, plan), future, watch))
            self._changed.notify()
        return future

    def close(self, grace: float = 30.0) -> int:
        """Refuse new requests, wait `grace` seconds, then fail the unfinished with ClosedError.

        Returns how many were unfinished.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(grace)
        self._is_aborting = True
        self._thread.join()
        return self._num_cut_off

    def _run(self, load: Callable[[], Engine], loaded: Future[Engine]) -> None:
        try:
            engine = load()
        except BaseException as error:
            loaded.set_exception(error)
            return
        loaded.set_result(engine)
        self._loop(engine)

    def _loop(self, engine: Engine) -> None:
        while self._admit(engine.max_running):
            if self._is_aborting:
                self._abort()
                return
            try:
                engine.step([ticket.request for ticket in self._running])
            except Exception as error:
                self._fail_all(PlanError(f"the engine failed: {type(error).__name__}: {error}"))
            self._leave()

    def _admit(self, max_running: int) -> bool:
        """Wait for work and start as much as there is room for. Return False once the engine is
        closing and nothing is left to run.
        """
        with self._changed:
            while not self._running and not self._waiting:
                if self._is_closing:
                    return False
                self._changed.wait()
            joining: list[_Ticket] = []
            while self._waiting and len(self._running) + len(joining) < max_running:
                joining.append(self._waiting.popleft())
        for ticket in joining:
            if not ticket.future.cancelled():
                ticket.request.start()
                self._running.append(ticket)
        self._leave()
        return True

    def _leave(self) -> None:
        """Settle the requests that have ended, and drop those that their callers cancelled."""
        staying = []
        for ticket in self._running:
            if ticket.future.cancelled():
                ticket.request.close()
            elif ticket.request.is_finished:
                ticket.settle()
            else:
                ticket.show()
                staying.append(ticket)
        self._running = staying

    def _abort(self) -> None:
        with self._changed:
            self._running += self._waiting
            self._waiting.clear()
        self._num_cut_off = sum(not ticket.future.done() for ticket in self._running)
        self._fail_all(ClosedError("the engine was shut down before the request was done"))

    def _fail_all(self, error: DiseError) -> None:
        for ticket in self._running:
            ticket.fail(error)
        self._running = []
