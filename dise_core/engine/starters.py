"""Threads in which plans start, that is read their prompts."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

NUM_THREADS = 2

SECONDS = 30.0
"""How long a plan may take to start."""

MOST_STUCK = 16
"""Threads that may be left behind, each with a start that has not ended yet."""


class Starters(Generic[T]):
    """Starts what is put in, in order. A start that takes too long is given up, and its thread,
    which Python cannot end, is replaced: so it holds up nobody else.
    """

    def __init__(self, start: Callable[[T], None]) -> None:
        """start: is called in one of the threads, and raises nothing."""
        self._start = start
        self._queue: SimpleQueue[T | None] = SimpleQueue()
        self._busy: dict[Thread, tuple[T, float]] = {}
        self._stuck: set[Thread] = set()
        self._changing = Lock()
        self._add(NUM_THREADS)

    def put(self, item: T) -> None:
        """Start the item once a thread is free."""
        self._queue.put(item)

    def given_up(self) -> list[T]:
        """Return what takes too long to start, each once; another thread stands in for its own."""
        with self._changing:
            now = monotonic()
            late = [each for each in self._busy.items() if now - each[1][1] > SECONDS]
            late = late[: MOST_STUCK - len(self._stuck)]
            for thread, _ in late:
                del self._busy[thread]
                self._stuck.add(thread)
            self._add(len(late))
        return [item for _, (item, _) in late]

    def close(self) -> None:
        """End the threads once they have started all that was put in."""
        for _ in range(NUM_THREADS):
            self._queue.put(None)

    def _add(self, count: int) -> None:
        for _ in range(count):
            Thread(target=self._run, name="dise-start", daemon=True).start()

    def _run(self) -> None:
        thread = current_thread()
        while (item := self._queue.get()) is not None:
            with self._changing:
                self._busy[thread] = (item, monotonic())
            self._start(item)
            with self._changing:
                if thread in self._stuck:
                    self._stuck.remove(thread)
                    return
                del self._busy[thread]
