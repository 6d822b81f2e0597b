"""Who may reuse what others' texts began with: requests of one salt, and callers of one key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from dise_app.server.app import create_app
from dise_app.server.limits import Limits
from dise_app.server.service import Service
from dise_core import AsyncLLM, InputError, SamplingParams
from dise_core.constraints import orders
from dise_core.constraints.automaton import Automaton
from dise_core.constraints.building import Source, Stop, build
from dise_core.engine.caller import CALLER_SALT
from tests import tiny_gguf
from tests.app.serving import Serve, events_of, serving

LONG = "12,3,8,5 -> 22\n" * 8
SHARED = 64
"""The fewest tokens of a beginning that an answer reuses."""

KEYS = ("one", "two")
DISE = {"length": "fixed"}
TEXT = {"prompt": LONG, "max_tokens": 4, "dise": DISE}
CHAT = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 4, "dise": DISE}
NEWER = {"input": LONG, "max_output_tokens": 4, "dise": DISE}
WRITING = [("/v1/completions", TEXT), ("/v1/chat/completions", CHAT), ("/v1/responses", NEWER)]
SCORES = [
    ("/v1/score", {"prompt": LONG, "response": "1+1=2"}),
    ("/v1/rank", {"prompt": LONG, "candidates": ["1+1=2", "1+1=3"]}),
]
STREAM = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
QUESTION = {"type": "predicate", "name": "a", "instructions": "Is it?"}
DECISION = {"input": "the input " * 9, "questions": [QUESTION], "dise": {"layout": "cloze"}}


@pytest.fixture(scope="module")
def by_key(served: Serve) -> str:
    limits = Limits(grace=5, cache_salt_by_key=True)
    return served(AsyncLLM("countdown-blocks"), limits, KEYS)


def post(url: str, path: str, body: dict[str, Any], key: str = "one") -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(url + path, json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    told: Any = answer.json() if "stream" not in body else events_of(answer.text)[-1]
    return dict(told)


def cached(answer: dict[str, Any]) -> int:
    usage = answer["usage"]
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    return int(details["cached_tokens"])


def words(answer: dict[str, Any]) -> object:
    """Return what an answer says, without what differs each time."""
    if "output" in answer:
        return answer["output"][0]["content"]
    if "data" in answer:
        return [text["index"] for text in answer["data"]]
    return [choice.get("text", choice.get("message")) for choice in answer["choices"]]


@pytest.mark.parametrize(("path", "body"), [*WRITING, *SCORES])
def test_a_salt_isolates_and_changes_no_answer(path: str, body: dict[str, Any]) -> None:
    with serving(AsyncLLM("countdown-blocks")) as url:
        first = post(url, path, body)
        assert cached(first) == 0
        assert cached(post(url, path, body)) >= SHARED
        for salt in "ab":
            salted = {**body, "cache_salt": salt}
            fresh, again = post(url, path, salted), post(url, path, salted)
            assert cached(fresh) == 0
            assert cached(again) >= SHARED
            assert words(first) == words(fresh) == words(again)


@pytest.mark.parametrize(
    ("path", "body"), [*WRITING, *SCORES, ("/v1/chat/completions", STREAM)], ids=str
)
def test_a_key_sees_nothing_of_what_another_asked(
    by_key: str, path: str, body: dict[str, Any]
) -> None:
    own = {**body, "cache_salt": f"{path} {'stream' in body}"}
    first = [post(by_key, path, own, key) for key in KEYS]
    again = [post(by_key, path, own, key) for key in KEYS]
    assert [cached(answer) for answer in first] == [0, 0]
    assert min(cached(answer) for answer in again) >= SHARED
    assert words(first[0]) == words(first[1]) == words(again[0])


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The expressions whose automata are built from now on."""
    sources: list[str] = []

    def counted(source: Source, stop: Stop | None) -> Automaton:
        sources.append(source.text)
        return build(source, stop)

    monkeypatch.setattr(orders, "build", counted)
    return sources


@pytest.mark.parametrize(
    ("path", "body"), [*WRITING[:2], ("/v1/chat/completions", STREAM)], ids=str
)
def test_a_key_finds_no_constraint_that_was_prepared_for_another(
    by_key: str, built: list[str], path: str, body: dict[str, Any]
) -> None:
    regex = f"[0-9]{{1,3}}|{len(str(body))}"
    for key in KEYS * 2:
        post(by_key, path, {**body, "structured_outputs": {"regex": regex}}, key)
    assert built == [regex] * len(KEYS)


def test_a_plan_that_prepares_its_own_constraint_does_so_with_its_callers_salt(
    built: list[str],
) -> None:
    settings = {"constraint": "regex", "constraint_settings": {"regex": "[4-7]{1,3}"}}
    params = SamplingParams.model_validate({"max_tokens": 4, "length": "fixed", **settings})

    async def ask(llm: AsyncLLM, salt: str) -> None:
        CALLER_SALT.set(salt)
        [outcome] = [outcome async for outcome in llm.run([llm.planner.generate("1", params)])]
        assert outcome.error is None

    async def main() -> None:
        async with AsyncLLM("countdown-blocks") as llm:
            for salt in ("a", "b", "", "a", "b", ""):
                await asyncio.create_task(ask(llm, salt))

    asyncio.run(main())
    assert len(built) == 3


def test_decisions_of_a_key_are_isolated_though_a_plugin_brings_their_route(tmp_path: Path) -> None:
    """With an auto-regressive model, which reads any text."""
    limits = Limits(grace=5, cache_salt_by_key=True)
    model = str(tiny_gguf.write(tmp_path / "tiny.gguf"))
    with serving(AsyncLLM(model), limits, KEYS) as url:
        told = [cached(post(url, "/v1/decisions", DECISION, key)) for key in (*KEYS, *KEYS)]
    assert told[0] == told[1]
    assert told[2] == told[3] >= told[0] + SHARED


def test_decisions_of_other_salts_share_nothing(tmp_path: Path) -> None:
    with serving(AsyncLLM(str(tiny_gguf.write(tmp_path / "tiny.gguf")))) as url:
        post(url, "/v1/decisions", DECISION | {"cache_salt": "a"})
        told = [
            cached(post(url, "/v1/decisions", DECISION | salted))
            for salted in ({"cache_salt": "a"}, {"cache_salt": "b"}, {}, {"cache_salt": "b"})
        ]
    fresh = told[1]
    assert told[2] == fresh
    assert told[0] == told[3] >= fresh + SHARED


def test_without_keys_there_is_nothing_to_derive_a_salt_from() -> None:
    with pytest.raises(InputError, match="needs API keys"):
        create_app(Service(Limits(cache_salt_by_key=True)))
