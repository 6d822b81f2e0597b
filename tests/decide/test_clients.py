"""Decisions by a client that others wrote, unchanged: LiteLLM."""

from __future__ import annotations

from typing import Any

import pytest

from dise import LLM, AsyncLLM
from dise_decide import Choice, ChoiceQuestion, PredicateQuestion, ScoreQuestion
from tests.app.serving import Serve, imported
from tests.ascii_model import AsciiPredictor

pytestmark = pytest.mark.filterwarnings("ignore")

QUESTIONS = [
    {"type": "predicate", "name": "spam", "instructions": "Is it spam?"},
    {
        "type": "choice",
        "name": "tone",
        "instructions": "Which?",
        "choices": [{"value": "calm"}, {"value": "angry", "description": "loud"}],
    },
    {
        "type": "score",
        "name": "urgency",
        "instructions": "How urgent?",
        "levels": [{"label": "low"}, {"label": "high"}],
    },
]


@pytest.fixture(scope="module")
def url(served: Serve) -> str:
    return served(AsyncLLM(AsciiPredictor()))


def expected() -> Any:
    """Return the library's answers: spam, tone, urgency."""
    loud = Choice(value="angry", description="loud")
    questions = [
        PredicateQuestion(instructions="Is it spam?"),
        ChoiceQuestion(instructions="Which?", choices=(Choice(value="calm"), loud)),
        ScoreQuestion(instructions="How urgent?", levels=("low", "high")),
    ]
    return LLM(AsciiPredictor()).decide("You won!", questions).answers


def test_litellm(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = imported("litellm")
    response = litellm.decisions(
        model="openai/ascii", input="You won!", questions=QUESTIONS, api_base=url, api_key="none"
    )
    spam, tone, urgency = response.answers
    one, which, much = expected()
    assert spam.probability == pytest.approx(one.probability)
    assert tone.choice == which.choice
    assert [(each.value, each.probability) for each in tone.probabilities] == [
        (each.value, pytest.approx(each.probability)) for each in which.probabilities
    ]
    assert urgency.score == pytest.approx(much.score)
    assert urgency.confidence == pytest.approx(much.confidence)
    assert response.usage.input_tokens > 0
