"""Decisions by clients that others wrote, unchanged: LiteLLM on both wires, and DSPy's decision
types through TypeSafe's SDK.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dise import LLM, AsyncLLM
from dise_decide import (
    Choice,
    ChoiceAnswer,
    ChoiceQuestion,
    Option,
    PredicateAnswer,
    PredicateQuestion,
    ScoreAnswer,
    ScoreQuestion,
)
from dise_decide.routes import SystemOneRequest
from tests.app.serving import imported, serving
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
def url() -> Iterator[str]:
    with serving(AsyncLLM(AsciiPredictor())) as url:
        yield url


def expected(levels: tuple[Option, ...]) -> Any:
    """Return the library's answers: spam, tone, urgency."""
    loud = Choice(value="angry", description="loud")
    questions = [
        PredicateQuestion(instructions="Is it spam?"),
        ChoiceQuestion(instructions="Which?", choices=(Choice(value="calm"), loud)),
        ScoreQuestion(instructions="How urgent?", levels=levels),
    ]
    return LLM(AsciiPredictor()).decide("You won!", questions).answers


WORDS = (Option(label="low"), Option(label="high"))
NUMBERS = (Option(label="0", description="low"), Option(label="1", description="high"))


@pytest.mark.parametrize(("provider", "levels"), [("openai", WORDS), ("hosted_vllm", NUMBERS)])
def test_litellm_on_either_wire(
    url: str, provider: str, levels: tuple[Option, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = imported("litellm")
    response = litellm.decisions(
        model=f"{provider}/ascii",
        input="You won!",
        questions=QUESTIONS,
        api_base=url,
        api_key="none",
    )
    spam, tone, urgency = response.answers
    one, which, much = expected(levels)
    assert spam.probability == pytest.approx(one.probability)
    assert tone.choice == which.choice
    assert [(each.value, each.probability) for each in tone.probabilities] == [
        (each.value, pytest.approx(each.probability)) for each in which.probabilities
    ]
    assert urgency.score == pytest.approx(much.score)
    assert urgency.confidence == pytest.approx(much.confidence)
    assert response.usage.input_tokens > 0


def test_dspys_decision_types(url: str) -> None:
    imported("typesafe_sdk")
    dspy, types = imported("dspy"), imported("dspy.experimental")
    fields = {
        "mail": (str, dspy.InputField()),
        "spam": (types.Noul, dspy.OutputField(desc="Is it spam?")),
        "tone": (
            types.Choice[("calm", "quiet"), ("angry", "loud")],
            dspy.OutputField(desc="Which tone?"),
        ),
        "urgency": (types.Score["low", "high"], dspy.OutputField(desc="How urgent?")),
    }
    client = types.TypeSafe(model="ascii", api_key="none", base_url=url, cache=False)
    with dspy.context(lm=client):
        found = dspy.Predict(dspy.Signature(fields, "Judge the mail."))(mail="You won!")
    [told] = client.history
    sent = told["request"]
    body = SystemOneRequest(state=sent["state"], questions=sent["questions"])
    spam, tone, urgency = LLM(AsciiPredictor()).decide(body.subject, body.typed_questions).answers
    assert isinstance(spam, PredicateAnswer)
    assert isinstance(tone, ChoiceAnswer)
    assert isinstance(urgency, ScoreAnswer)
    assert found.spam.probability == pytest.approx(spam.probability)
    assert found.tone.value == tone.choice
    assert found.tone.probabilities == pytest.approx(
        {each.value: each.probability for each in tone.probabilities}
    )
    assert found.urgency.value == pytest.approx(urgency.score)
