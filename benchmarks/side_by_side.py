"""Times ways of doing one thing against each other: they take turns, so that a machine's moods hit
all alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dise_core import LLM

Times = dict[str, list[float]]


def take_turns(ways: Mapping[str, Callable[[], Any]], rounds: int) -> tuple[Times, dict[str, Any]]:
    """Return the seconds of each way in each round, after one that is not counted, and what each
    returned last.
    """
    times: Times = {name: [] for name in ways}
    results = {name: way() for name, way in ways.items()}
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            results[name] = way()
            times[name].append(time.perf_counter() - started)
    return times, results


def ratios(times: Times, one: str, other: str) -> list[float]:
    """Return how many times longer `one` took than `other`, round by round."""
    return [a / b for a, b in zip(times[one], times[other], strict=True)]


def spread(values: Sequence[float]) -> str:
    """Return the median and the range as text."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def whole_reader(model: str) -> Any:
    """Return the reader of a model that transformers computes whole, with its own attention."""
    reader = LLM(model, attn_implementation="eager").predictor._reader  # type: ignore[attr-defined]
    reader._body._model.set_attn_implementation("sdpa")
    return reader
