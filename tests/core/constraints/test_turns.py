"""Builders: callers take turns, and what nobody waits for is not built."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any

import pytest

from dise_core.constraints import turns
from dise_core.constraints.building import Source, Stop
from dise_core.constraints.turns import Builders
from dise_core.errors import ClosedError, InputError, OverloadedError


@dataclass
class Orders:
    """Orders that end when the test says so, and in which order they began."""

    begun: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def of(self, key: str, *, is_small: bool = False, ends: bool = False) -> Any:
        """Return an order; `ends` lets it end as soon as it begins."""
        order = Order(self, key, Source("a" if is_small else r"\w"))
        if ends:
            order.may_end.set()
        return order

    def wait_for(self, *begun: str) -> None:
        """Wait until these have begun, in that order and no others."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= len(begun), 30)
            assert self.begun == list(begun)


@dataclass
class Order:
    """Stands for an order whose build takes as long as the test wants, and then gives its key."""

    orders: Orders
    key: str
    source: Source
    num_masks: int = 0
    may_end: threading.Event = field(default_factory=threading.Event)

    def built(self, stop: Stop) -> str:
        with self.orders.changed:
            self.orders.begun.append(self.key)
            self.orders.changed.notify_all()
        while not self.may_end.wait(0.005):
            stop.check()
        if self.key == "bad":
            raise InputError("no such thing")
        return self.key


@pytest.fixture
def builders() -> Any:
    """Yield builders, closed at the end."""
    builders = Builders()
    yield builders
    builders.close()


def test_a_caller_with_one_order_does_not_wait_behind_all_those_of_another(
    builders: Builders,
) -> None:
    orders = Orders()
    hostile = [orders.of(f"h{number}") for number in range(6)]
    futures = [builders.submit(order, "hostile") for order in hostile]
    orders.wait_for("h0", "h1")
    last = builders.submit(orders.of("honest", ends=True), "honest")
    hostile[0].may_end.set()
    assert str(last.result(30)) == "honest"
    assert orders.begun[:3] == ["h0", "h1", "honest"]
    for order in hostile:
        order.may_end.set()
    assert [str(future.result(30)) for future in futures] == [f"h{n}" for n in range(6)]


def test_who_joins_a_build_does_not_wait_in_the_line_of_who_asked_first(builders: Builders) -> None:
    orders = Orders()
    hostile = [orders.of(f"h{number}") for number in range(6)]
    for order in hostile:
        builders.submit(order, "hostile")
    orders.wait_for("h0", "h1")
    left = builders.submit(hostile[4], "another")
    joined = builders.submit(hostile[5], "honest")
    left.cancel()
    hostile[5].may_end.set()
    hostile[0].may_end.set()
    assert str(joined.result(30)) == "h5"
    assert orders.begun[:3] == ["h0", "h1", "h5"]


def test_what_is_small_waits_for_nothing_that_is_large(builders: Builders) -> None:
    orders = Orders()
    large = [orders.of(f"large{number}") for number in range(3)]
    futures = [builders.submit(order, "one") for order in large]
    small = orders.of("small", is_small=True, ends=True)
    assert str(builders.submit(small, "one").result(30)) == "small"
    assert not any(future.done() for future in futures)


def test_what_several_ask_for_is_built_once_until_none_is_left(builders: Builders) -> None:
    orders = Orders()
    order = orders.of("same")
    first, second, third = (builders.submit(order, caller) for caller in "abc")
    orders.wait_for("same")
    first.cancel()
    order.may_end.set()
    assert str(second.result(30)) == str(third.result(30)) == "same"
    assert len(orders.begun) == 1


def test_a_build_that_nobody_waits_for_is_ended_and_its_place_is_free(builders: Builders) -> None:
    orders = Orders()
    futures = [builders.submit(orders.of(f"left{number}"), "a") for number in range(3)]
    orders.wait_for("left0", "left1")
    for future in reversed(futures):  # the one in the line first
        future.cancel()
    assert str(builders.submit(orders.of("after", ends=True), "b").result(30)) == "after"
    assert orders.begun == ["left0", "left1", "after"]
    assert not builders._builds
    assert not builders._turns


def test_all_who_wait_are_told_why_a_build_failed(builders: Builders) -> None:
    order = Orders().of("bad")
    futures = [builders.submit(order, caller) for caller in "ab"]
    order.may_end.set()
    for future in futures:
        with pytest.raises(InputError, match="no such thing"):
            future.result(30)


def test_a_line_that_is_too_long_is_refused_at_once_and_for_its_caller_alone(
    builders: Builders,
) -> None:
    orders = Orders()
    for number in range(turns.SLOTS + turns.MAX_AHEAD + 1):
        builders.submit(orders.of(f"h{number}"), "hostile")
    with pytest.raises(OverloadedError, match="41 constraints are to be prepared before this one"):
        builders.submit(orders.of("one more"), "hostile")
    builders.submit(orders.of("small", is_small=True), "hostile")
    builders.submit(orders.of("honest"), "honest")


def test_closing_ends_all(builders: Builders) -> None:
    orders = Orders()
    futures = [builders.submit(orders.of(f"o{number}"), "a") for number in range(3)]
    futures[2].cancel()
    builders.close()
    for future in futures[:2]:
        with pytest.raises(ClosedError, match="shutting down"):
            future.result(30)
    with pytest.raises(CancelledError):
        futures[2].result(30)
    with pytest.raises(ClosedError):
        builders.submit(orders.of("new"), "a")
