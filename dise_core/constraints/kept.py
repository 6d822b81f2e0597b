"""What is kept from one request to the next, within a number of bytes."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary


class Sized(Protocol):
    """What tells how many bytes it holds, which may become more."""

    @property
    def num_bytes(self) -> int: ...


V = TypeVar("V", bound=Sized)


class Kept:
    """The values that were used last, as many as fit, and all others as long as they are
    in use. Threads may share it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._last: OrderedDict[Hashable, Sized] = OrderedDict()
        self._alive: WeakValueDictionary[Hashable, Sized] = WeakValueDictionary()

    @property
    def num_bytes(self) -> int:
        """The bytes of what is kept though nobody may use it."""
        with self._lock:
            return sum(value.num_bytes for value in self._last.values())

    @property
    def num_bytes_alive(self) -> int:
        """The bytes of all values that are in use or kept."""
        with self._lock:  # a copy at once: values go away at any time
            alive = self._alive.valuerefs()
        return sum(value.num_bytes for ref in alive if (value := ref()) is not None)

    def get(self, kind: type[V], key: Hashable) -> V | None:
        """Return the value of that kind and key, None where there is none."""
        value = self._alive.get((kind, key))
        if not isinstance(value, kind):
            return None
        self.put(key, value)
        return value

    def put(self, key: Hashable, value: Sized) -> None:
        """Keep a value, by its kind and key, as the one that was used last."""
        key = type(value), key
        dropped = []  # freed after the lock is
        with self._lock:
            self._alive[key] = self._last[key] = value
            self._last.move_to_end(key)
            sizes = [value.num_bytes for value in self._last.values()]  # others may change them
            total = sum(sizes)
            for size in sizes:
                if total <= self._max_bytes:
                    break
                dropped.append(self._last.popitem(last=False))
                total -= size


KEPT = Kept(2**27)
"""Vocabularies and automata over their tokens, for the requests that follow."""
