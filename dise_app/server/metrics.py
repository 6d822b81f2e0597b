"""The metrics that Prometheus reads at /metrics."""

import math
from collections.abc import Callable
from functools import partial
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dise_core import RequestOutput, Usage
from dise_core.engine import AsyncEngine

LATENCIES = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
SCORES = (-10, -5, -3, -2, -1.5, -1, -0.7, -0.5, -0.3, -0.2, -0.1, -0.05, -0.01, 0)


class Costed(Protocol):
    """An answer that tells what it took."""

    @property
    def usage(self) -> Usage: ...


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self, engine: Callable[[], AsyncEngine | None]) -> None:
        self._registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        about = "Requests answered, by path and status"
        self.requests = counter("dise_requests", about, ["path", "status"])
        about = "Time to the end of the answer"
        self.latency = histogram("dise_request_seconds", about, ["path"], buckets=LATENCIES)
        self._nfe = counter("dise_nfe", "Sequences sent through a forward pass")
        self._tokens = counter("dise_tokens", "Tokens, by kind", ["kind"])
        about = "Scores of outputs, by scorer"
        self._scores = histogram("dise_score", about, ["scorer"], buckets=SCORES)
        running = gauge("dise_requests_running", "Requests under way in the engine")
        running.set_function(lambda: 0 if (loaded := engine()) is None else loaded.num_running)
        waiting = gauge("dise_requests_waiting", "Requests that wait to start")
        waiting.set_function(lambda: 0 if (loaded := engine()) is None else loaded.num_waiting)

    def count(self, answer: Costed) -> None:
        self._nfe.inc(answer.usage.nfe)
        self._tokens.labels("prompt").inc(answer.usage.prompt_tokens)
        self._tokens.labels("cached").inc(answer.usage.cached_tokens)
        self._tokens.labels("completion").inc(answer.usage.completion_tokens)
        for output in answer.outputs if isinstance(answer, RequestOutput) else ():
            if math.isfinite(output.score.value):
                self._scores.labels(output.scorer).observe(output.score.value)

    def text(self) -> bytes:
        return generate_latest(self._registry)
