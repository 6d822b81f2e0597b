"""The metrics that Prometheus reads at /metrics."""

from __future__ import annotations

import math
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dise_core import DecisionOutput, RequestOutput
from dise_core.engine import AsyncEngine

LATENCIES = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
SCORES = (-10, -5, -3, -2, -1.5, -1, -0.7, -0.5, -0.3, -0.2, -0.1, -0.05, -0.01, 0)


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self, engine: Callable[[], AsyncEngine | None]) -> None:
        """engine: returns the engine, None until it is loaded."""
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "dise_requests",
            "Requests answered, by path and status",
            ["path", "status"],
            registry=self._registry,
        )
        self.latency = Histogram(
            "dise_request_seconds",
            "Time to the end of the answer",
            ["path"],
            buckets=LATENCIES,
            registry=self._registry,
        )
        self._nfe = Counter(
            "dise_nfe", "Sequences sent through a forward pass", registry=self._registry
        )
        self._tokens = Counter("dise_tokens", "Tokens, by kind", ["kind"], registry=self._registry)
        self._scores = Histogram(
            "dise_score",
            "Scores of outputs, by scorer",
            ["scorer"],
            buckets=SCORES,
            registry=self._registry,
        )
        running = Gauge(
            "dise_requests_running", "Requests under way in the engine", registry=self._registry
        )
        running.set_function(lambda: 0 if (its := engine()) is None else its.num_running)
        waiting = Gauge(
            "dise_requests_waiting", "Requests that wait to start", registry=self._registry
        )
        waiting.set_function(lambda: 0 if (its := engine()) is None else its.num_waiting)

    def count(self, answer: RequestOutput | DecisionOutput) -> None:
        self._nfe.inc(answer.usage.nfe)
        self._tokens.labels("prompt").inc(answer.usage.prompt_tokens)
        self._tokens.labels("completion").inc(answer.usage.completion_tokens)
        for output in answer.outputs if isinstance(answer, RequestOutput) else ():
            if math.isfinite(output.score.value):
                self._scores.labels(output.scorer).observe(output.score.value)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)
