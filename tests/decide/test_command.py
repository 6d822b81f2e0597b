"""dise decide, and decisions over HTTP: with the official openai client, and as plain JSON."""

from __future__ import annotations

import json
from io import BytesIO, TextIOWrapper
from typing import Any

import httpx
import openai
import pytest
from fastapi.testclient import TestClient

from dise import LLM, AsyncLLM
from dise_app.server.app import create_app
from dise_app.server.limits import Limits
from dise_app.server.service import Service
from dise_core import InputError
from dise_decide import (
    Choice,
    ChoiceQuestion,
    DecisionOutput,
    DecisionParams,
    PredicateQuestion,
    ScoreQuestion,
)
from tests.app.serving import Serve
from tests.ascii_model import AsciiPredictor
from tests.commands import Dise

PROBLEM = "83,18,75 -> 10"
CLOZE = ("--layout", "cloze")

has_decisions = pytest.mark.skipif(
    not hasattr(openai.OpenAI, "decisions"), reason="this openai client has no decisions yet"
)


@pytest.fixture(scope="module")
def url(served: Serve) -> str:
    limits = Limits(max_passes=20, grace=5)
    llm = AsyncLLM(AsciiPredictor(has_chat_template=True), budget=limits.budget)
    return served(llm, limits)


def decided(given: Any, questions: Any, **params: Any) -> DecisionOutput:
    llm = LLM(AsciiPredictor(has_chat_template=True))
    output = llm.decide(given, questions, DecisionParams(**params))
    assert isinstance(output, DecisionOutput)
    return output


def near(record: object) -> Any:
    """Return JSON that equals one whose numbers are nearly these."""
    text = json.dumps(record)
    return json.loads(text, parse_float=lambda number: pytest.approx(float(number), abs=1e-4))


def test_the_command_prints_json_with_the_librarys_answer(dise: Dise) -> None:
    asked = ("--choice", "5+8=+,-,*", "--scale", "7=1,2,3", *CLOZE)
    run = dise("decide", PROBLEM, "1,2 -> 3", *asked, "--json")
    assert (run.code, run.err) == (0, "")
    first, second = map(json.loads, run.out.splitlines())
    questions = [
        ChoiceQuestion(instructions="5+8", choices=["+", "-", "*"]),
        ScoreQuestion(instructions="7", levels=["1", "2", "3"]),
    ]
    expected = LLM("countdown").decide(PROBLEM, questions, DecisionParams(layout="cloze"))
    assert first == near(expected.timed(first["usage"]["seconds"]).to_dict())
    assert first["usage"]["nfe"] == 2
    assert [answer["type"] for answer in second["answers"]] == ["choice", "score"]


def test_the_command_shows_a_table(dise: Dise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(PROBLEM.encode())))
    run = dise("decide", "-", "--choice", "5=+,-", "--scale", "7=1,2,3", *CLOZE)
    assert run.code == 0
    for part in (PROBLEM, "label mass", "of 2", "2 forward passes", "+ 0.", "- 0."):
        assert part in run.out


QUESTIONS = [
    {"type": "predicate", "name": "spam", "instructions": "Is it spam?"},
    {
        "type": "choice",
        "instructions": [{"type": "input_text", "text": "Which tone?"}],
        "choices": [{"value": "calm"}, {"value": True, "description": "it is so"}],
    },
    {
        "type": "score",
        "name": "u",
        "instructions": "How urgent?",
        "levels": [{"label": "low"}, {"label": "high"}],
    },
]
OURS = [
    PredicateQuestion(name="spam", instructions="Is it spam?"),
    ChoiceQuestion(
        instructions="Which tone?", choices=("calm", Choice(value=True, description="it is so"))
    ),
    ScoreQuestion(name="u", instructions="How urgent?", levels=["low", "high"]),
]


def assert_same(answers: Any, expected: DecisionOutput) -> None:
    """Assert that answers on OpenAI's wire are the library's."""
    for found, answer in zip(answers, expected.answers, strict=True):
        wanted = near(answer.model_dump(mode="json", exclude={"diagnostics"}))
        assert {name: found[name] for name in wanted} == wanted


@has_decisions
def test_the_openai_client_gets_the_librarys_answers(client: openai.OpenAI) -> None:
    decision = client.decisions.create(
        model="ascii", input="You won!", questions=QUESTIONS, safety_identifier="me"
    )
    expected = decided("You won!", OURS)
    assert [answer.type for answer in decision.answers] == ["predicate", "choice", "score"]
    assert_same([answer.model_dump() for answer in decision.answers], expected)
    assert decision.usage.input_tokens == expected.usage.prompt_tokens
    assert decision.usage.output_tokens == expected.usage.completion_tokens
    assert decision.usage.total_tokens == sum(
        (expected.usage.prompt_tokens, expected.usage.completion_tokens)
    )
    assert decision.dise["nfe"] == 3
    assert decision.dise["warnings"] == list(expected.warnings) != []
    told = decision.dise["diagnostics"][1]
    assert told["label_mass"] == pytest.approx(expected.answers[1].diagnostics.label_mass)


@has_decisions
def test_the_openai_client_sends_conversations(client: openai.OpenAI) -> None:
    parts = [{"type": "input_text", "text": "hi"}, {"type": "input_json", "data": {"a": [1, None]}}]
    decision = client.decisions.create(
        model="ascii",
        input=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}],
        questions=QUESTIONS[:1],
        extra_body={"dise": {"joint": True}},
    )
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": 'hi\n{"a": [1, null]}'},
    ]
    assert_same([a.model_dump() for a in decision.answers], decided(turns, OURS[:1]))
    assert decision.dise["is_joint"] is True


def test_the_operator_says_what_requests_leave_unsaid() -> None:
    options = {"reading": "each", "confidence": "margin"}
    llm = AsyncLLM(AsciiPredictor(has_chat_template=True))
    with TestClient(create_app(Service(Limits(), llm, options))) as client:
        by_default, other, joint = (
            client.post(
                "/v1/decisions", json={"input": "a", "questions": QUESTIONS, "dise": own}
            ).json()
            for own in ({}, {"confidence": "top"}, {"joint": True})
        )
    told = [body["dise"]["diagnostics"][1] for body in (by_default, other, joint)]
    assert [one["reading"] for one in told] == ["each", "each", "menu"]
    assert [one["passes"] for one in told] == [2, 2, 1]
    assert [one["confidence"] for one in told] == ["margin", "top", "margin"]
    assert joint["dise"]["is_joint"]
    assert_same(by_default["answers"], decided("a", OURS, **options))
    another = AsyncLLM(AsciiPredictor(has_chat_template=True))
    with pytest.raises(InputError, match="joint goes with reading menu"):
        create_app(Service(Limits(), another, options | {"joint": True}))


def test_a_path_that_was_taken_out_says_what_to_use(url: str) -> None:
    reply = httpx.post(f"{url}/v1/systemone", json={"state": "a"}, timeout=30)
    assert reply.status_code == 404
    message = "path '/v1/systemone' was taken out: POST /v1/decisions takes the same questions."
    assert reply.json()["error"]["message"] == message
