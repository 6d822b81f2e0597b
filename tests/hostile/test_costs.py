"""What one request may cost: every number that it sets has a bound, and it ends at its budget."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from dise_app.server.limits import Limits
from dise_core import LLM, AsyncLLM, InputError, SamplingParams, ScoringParams
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.kinds import STRATEGIES
from dise_core.testing import ToyPredictor
from tests.app.serving import serving
from tests.ascii_model import AsciiPredictor
from tests.hostile.bounds import bounded

PATTERNS = {
    "(?x)a{1 0 0 0 0 0 0}": 400,
    "(?x)a{9 0 0 0 0 0 0 0 0}": 400,
    "(?x)a{1#\n000000}": 400,
    "a{1000000}": 400,
    "(?:(?:a{999}){999}){999}": 400,
    "(?:.?){1000}": 400,
    r"(\w+\s?)*$x": 200,
    "(a+)+$": 200,
    "a(.*z)?": 200,
    "(a?b?){300}": 200,
}
"""Patterns and what a request with one is answered."""

PATTERNS_ALONE = """
import resource, sys, time
from dise_core import InputError
from dise_core.plugins.discovery import installed_catalog
from dise_core.sequence import SpecialTokens, TokenSequence

catalog, special = installed_catalog(), SpecialTokens(None, frozenset({0}), 0)
text = TokenSequence.of([], [1] * 5000, special, 8, spell=lambda ids: (b"a",) * len(ids))
catalog.selector("answer", {"pattern": "b"}).select(text)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for pattern in sys.argv[1:]:
    started = time.process_time()
    try:
        catalog.selector("answer", {"pattern": pattern}).select(text)
    except InputError:
        pass
    print(time.process_time() - started)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024)
"""

MODEL = ToyPredictor()
SMALL = SamplingParams(max_tokens=3, logprobs=None)

CATALOG = installed_catalog()
COSTS_NOTHING = {"batch_size"}
"""How many of the samples are read at a time."""


def unbounded(params: type[BaseModel]) -> set[str]:
    """Return the fields that may be any whole number or any list."""
    limits = {"integer": {"maximum", "exclusiveMaximum"}, "array": {"maxItems"}}
    found = set()
    for name, field in params.model_json_schema().get("properties", {}).items():
        for part in field.get("anyOf", [field]):
            needed = limits.get(part.get("type"))
            if needed is not None and not needed & set(part):
                found.add(name)
    return found


def test_every_whole_number_and_every_list_of_a_request_has_a_bound() -> None:
    entries = [entry for kind in STRATEGIES for entry in getattr(CATALOG, kind.plural).values()]
    for params in (SamplingParams, ScoringParams, *(entry.load() for entry in entries)):
        assert unbounded(params) <= COSTS_NOTHING, params


def test_a_length_beyond_any_model_is_refused() -> None:
    settings = {"expansion_factor": 4e8}
    params = SamplingParams(max_tokens=4, length="daedal", length_settings=settings)
    told = "length controller 'daedal': expansion_factor"
    with bounded(1.0, 0.1), pytest.raises(InputError, match=told):
        LLM(MODEL).generate([1, 2], params)


def test_interleaved_asks_at_most_once_for_each_token() -> None:
    params = ScoringParams(scorer="interleaved", scorer_settings={"k": 2**20}, selector="response")
    with bounded(1.0, 0.1):
        [answer] = LLM(MODEL).score([1], [2, 3, 4], params)
    assert answer.usage.nfe == 3 + 1


def test_a_long_prompt_is_refused_before_it_is_tokenized() -> None:
    with bounded(1.0, 0.1), pytest.raises(InputError, match="1900000 characters is longer than"):
        LLM(MODEL).generate("a" * 1_900_000, SMALL)


def test_a_pattern_holds_up_neither_its_request_nor_the_server() -> None:
    with serving(AsyncLLM(AsciiPredictor())) as url:
        asked = {"response": "a" * 900 + "!", "selector": "answer"}
        for pattern, status in PATTERNS.items():
            body = asked | {"selector_settings": {"pattern": pattern}}
            answer = httpx.post(f"{url}/v1/score", json=body, timeout=30)
            assert answer.status_code == status, answer.text
            assert status == 200 or "RE2 cannot use the expression" in answer.text
            assert httpx.get(f"{url}/health").status_code == 200


def test_no_pattern_takes_long_and_all_take_little_memory() -> None:
    """In a process of their own, whose peak of memory is theirs."""
    run = [sys.executable, "-c", PATTERNS_ALONE, *PATTERNS]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    *seconds, mebibytes = map(float, done.stdout.split())
    assert len(seconds) == len(PATTERNS)
    assert max(seconds) <= 0.2, seconds
    assert mebibytes <= 20


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
        sampled = {"scorer": "mc", "scorer_settings": {"num_samples": 10**6}}
        long = {"prompt": "a", "response": "bc", **sampled}
        assert httpx.post(f"{url}/v1/score", json=long).status_code == 400
        small = {"prompt": "a", "response": "b"}
        assert httpx.post(f"{url}/v1/score", json=small).status_code == 200


TOLD = {"logprobs": 20}
TEXTS = ["1" * 400] * 256


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("completions", {"prompt": "a", "n": 64, "temperature": 1, "max_tokens": 480, **TOLD}),
        ("completions", {"prompt": ["a"] * 256, "max_tokens": 480, **TOLD}),
        ("completions", {"prompt": TEXTS, "max_tokens": 0, "echo": True, **TOLD}),
        ("completions", {"prompt": "1" * 400, "echo": True, "n": 64, "max_tokens": 1, **TOLD}),
        (
            "completions",
            {"prompt": "a", "n": 64, "max_tokens": 8, "dise": {"length": "daedal"}, **TOLD},
        ),
        ("score", {"response": TEXTS, **TOLD}),
        ("rank", {"candidates": TEXTS, **TOLD}),
    ],
)
def test_an_answer_larger_than_the_limit_is_refused_before_any_pass(
    path: str, body: dict[str, Any]
) -> None:
    model = ToyPredictor()
    with serving(AsyncLLM(model)) as url, bounded(1.0, 0.2):
        refused = httpx.post(f"{url}/v1/{path}", json=body, timeout=30)
    assert refused.status_code == 400
    assert (
        "log-probabilities, more than 131072; ask for fewer" in refused.json()["error"]["message"]
    )
    assert model.batches == []
