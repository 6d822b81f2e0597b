"""A server whose request goes beyond its budget, and one whose engine has died."""

from __future__ import annotations

import httpx
import pytest

from dise_app.server.limits import Limits
from dise_core import AsyncLLM
from dise_core.engine import AsyncEngine
from dise_core.testing import ToyPredictor
from tests.app.serving import serving

SCORE = {"prompt": "a", "response": "b"}


def test_a_request_beyond_its_budget_is_told_so_and_its_neighbours_are_answered() -> None:
    limits = Limits(max_passes=20)
    with serving(AsyncLLM(ToyPredictor(), budget=limits.budget), limits) as url:
        many = {"prompt": ["a"] * 30, "max_tokens": 8}
        refused = httpx.post(f"{url}/v1/completions", json=many, timeout=30)
        assert refused.status_code == 400
        message = refused.json()["error"]["message"]
        assert "more than the 20 forward passes that one may take here" in message
        streamed = {"prompt": "a", "max_tokens": 30, "stream": True, "dise": {"tokens_per_step": 1}}
        lines = httpx.post(f"{url}/v1/completions", json=streamed, timeout=30).text.splitlines()
        assert any("more than the 20 forward passes" in line for line in lines)
        assert httpx.post(f"{url}/v1/score", json=SCORE).status_code == 200


def test_a_dead_engine_is_told_by_health_and_by_every_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(self: object) -> None:
        raise SystemExit("killed on purpose")

    with serving(AsyncLLM(ToyPredictor())) as url:
        assert httpx.get(f"{url}/health").json()["status"] == "ok"
        monkeypatch.setattr(AsyncEngine, "_leave", killed)
        for _ in range(2):
            answer = httpx.post(f"{url}/v1/score", json=SCORE, timeout=5)
            assert answer.status_code == 503
            assert "the engine has died" in answer.json()["error"]["message"]
        health = httpx.get(f"{url}/health")
        assert health.status_code == 503
        assert health.json()["status"].startswith("dead: the engine has died")
