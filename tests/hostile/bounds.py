"""How much one hostile case may take, how many cases are tried, and what a refusal looks like."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from dise_core.errors import InputError, ModelError
from tests.refusals.table import assert_sentence

NUM_CASES = int(os.environ.get("DISE_HOSTILE_CASES", "2000"))
"""Cases of all the generators together; `make hostile` sets more."""

SECONDS = 5.0
GIGABYTES = 1.0

BUSY = 8
"""How many times longer something may take on a machine with neighbours."""


def cases(share: float) -> Callable[[Any], Any]:
    """Return hypothesis' decorator for a generator that tries this share of all cases."""
    return settings(
        max_examples=max(1, round(NUM_CASES * share)),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def bounded(seconds: float = SECONDS, gigabytes: float = GIGABYTES) -> Iterator[None]:
    """Assert that what is done inside takes no more processor time and memory than that, and ends
    soon on a machine with neighbours too.
    """
    started, peak = _clocks(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        yield
    finally:
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 2**20
        computed, took = (now - then for now, then in zip(_clocks(), started, strict=True))
        assert computed <= seconds, f"computed for {computed:.1f} s"
        assert took <= BUSY * seconds, f"took {took:.1f} s"
        assert grown <= gigabytes, f"took {grown:.2f} GB"


@contextmanager
def one_line(match: str = "") -> Iterator[None]:
    """Assert that a refusal of one sentence, with that in it, is raised inside, in the bounds."""
    with bounded(), pytest.raises((ModelError, InputError), match=match) as caught:
        yield
    assert_sentence(str(caught.value))
    assert len(str(caught.value)) < 1000


def _clocks() -> tuple[float, float]:
    """Return this process's processor time, and the time."""
    return time.process_time(), time.monotonic()
