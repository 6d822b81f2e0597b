"""Callers take turns at building."""

import threading
from collections import Counter
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from dise_core.constraints.building import Stop
from dise_core.constraints.orders import Order
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.errors import ClosedError, OverloadedError

CLOSED = "the engine is shutting down and prepares no more constraints"

LANES = SMALL, LARGE = 0, 1
"""What milliseconds build, and what workers do: the one never waits for the other."""

SLOTS = 2
"""How many builds of a lane run at once."""

MAX_AHEAD = 40
"""Builds of a lane that may come before another."""

Built = Future[TokenAutomaton]


@dataclass(eq=False, slots=True)
class _Build:
    """What is built once for all who ask for it meanwhile. caller: who asked first, and
    then whose turn it took. waiting: the futures of those who wait, and whose they are.
    """

    key: Hashable
    order: Order
    caller: Hashable
    lane: int
    stop: Stop = field(default_factory=Stop)
    waiting: dict[Built, Hashable] = field(default_factory=dict)


class Builders:
    """Build what constraints need, in threads. In each lane the next build is of the
    caller with the fewest under way there, of those of whoever has waited longest.
    Methods are thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._builds: dict[Hashable, _Build] = {}
        self._running: list[list[_Build]] = [[] for _ in LANES]
        self._turn = 0
        self._turns: dict[Hashable, int] = {}
        self._pool = ThreadPoolExecutor(SLOTS * len(LANES))

    def submit(self, order: Order, caller: Hashable = None) -> Built:
        """Return the future of what is ordered; once nobody waits for it, a build is
        ended.

        Raises OverloadedError if too many come before it, ClosedError after `close`.
        """
        future: Built = Future()
        key = order.key, order.num_masks
        lane = SMALL if order.source.is_small else LARGE
        with self._lock:
            if self._is_closed:
                raise ClosedError(CLOSED)
            build = self._builds.get(key)
            if build is None:
                self._check_line(caller, lane)
                build = self._builds[key] = _Build(key, order, caller, lane)
            build.waiting[future] = caller
            self._start()
        future.add_done_callback(partial(self._left, build))
        return future

    def close(self) -> None:
        """End all builds; those who wait get ClosedError."""
        with self._lock:
            self._is_closed = True
            builds = list(self._builds.values())
            self._builds.clear()
        for build in builds:
            build.stop.set()
            self._settle(build, ClosedError(CLOSED))
        self._pool.shutdown(wait=False)

    def _line(self, lane: int) -> list[_Build]:
        """Return the builds that wait for their turn in a lane."""
        waiting = (build for build in self._builds.values() if build.lane == lane)
        return [build for build in waiting if build not in self._running[lane]]

    def _check_line(self, caller: Hashable, lane: int) -> None:
        """Raise OverloadedError if too many would come before a caller's next build."""
        line = self._line(lane)
        num_own = sum(build.caller == caller for build in line)
        num_others = len({build.caller for build in line} - {caller})
        ahead = min(len(line), num_own + (num_own + 1) * num_others)
        if ahead > MAX_AHEAD:
            raise OverloadedError(
                f"{ahead} constraints are to be prepared before this one; try again later"
            )

    def _start(self) -> None:
        """Start what there is room for."""
        for lane, running in enumerate(self._running):
            while len(running) < SLOTS and (line := self._line(lane)):
                under_way = Counter(build.caller for build in running)
                waiting = ((build, caller) for build in line for caller in build.waiting.values())
                build, caller = min(
                    waiting, key=lambda pair: (under_way[pair[1]], self._turns.get(pair[1], 0))
                )
                build.caller = caller
                running.append(build)
                self._turn += 1
                self._turns[build.caller] = self._turn
                self._pool.submit(self._run, build)

    def _run(self, build: _Build) -> None:
        outcome: TokenAutomaton | BaseException
        try:
            outcome = build.order.built(build.stop)
        except BaseException as error:
            outcome = error
        with self._lock:
            self._running[build.lane].remove(build)
            is_awaited = self._builds.get(build.key) is build
            self._forget(build)
            self._start()
        if is_awaited:
            self._settle(build, outcome)

    def _forget(self, build: _Build) -> None:
        """Let nobody join a build any more; forget the turns of who has no other."""
        if self._builds.get(build.key) is build:
            del self._builds[build.key]
        builds = self._builds.values()
        waiting = (caller for entry in builds for caller in entry.waiting.values())
        callers = {*waiting, *(entry.caller for entry in builds)}
        self._turns = {caller: turn for caller, turn in self._turns.items() if caller in callers}

    def _left(self, build: _Build, future: Built) -> None:
        if not future.cancelled():
            return
        with self._lock:
            del build.waiting[future]
            if build.waiting or self._builds.get(build.key) is not build:
                return
            self._forget(build)
        build.stop.set()

    @staticmethod
    def _settle(build: _Build, outcome: TokenAutomaton | BaseException) -> None:
        for future in list(build.waiting):
            if not future.set_running_or_notify_cancel():
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
