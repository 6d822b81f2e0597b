"""Clients that others wrote, plain: with the fields that they send of themselves, and no others."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import openai
import pytest

from dise_app.server.limits import Limits
from dise_core import AsyncLLM
from dise_core.arrays import Ids
from dise_core.testing.toy_model import Logits
from tests.app.serving import serving
from tests.ascii_model import END, VOCAB_SIZE, AsciiPredictor

pytestmark = pytest.mark.filterwarnings("ignore")

ANSWER = "[[ ## answer ## ]]\nParis\n\n[[ ## completed ## ]]"
QUESTION = "What is the capital of France?"
TURN = "<assistant>"
SURE = 20.0
"""Its logit of the one token; all others have 0. A draw at temperature 0.7 is another in one of a
billion.
"""


class Scripted(AsciiPredictor):
    """Is sure of one text, which it writes where its last turn begins."""

    def __init__(self) -> None:
        super().__init__(max_length=20_000, has_chat_template=True)
        self._turn = self.tokenizer.encode(TURN)
        self._script = self.tokenizer.encode(ANSWER)

    def logits(self, ids: Ids) -> Logits:
        sure = np.full(len(ids), END)
        start = _last(ids, self._turn)
        part = self._script[: len(ids) - start]
        sure[start : start + len(part)] = part
        logits = np.zeros((len(ids), VOCAB_SIZE))
        logits[np.arange(len(ids)), sure] = SURE
        return logits


def _last(ids: Ids, part: Ids) -> int:
    """Return where the last occurrence of a part ends; 0 without one."""
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(part))
    found = np.flatnonzero((windows == part).all(axis=1))
    return int(found[-1]) + len(part) if len(found) else 0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    limits = Limits(grace=5, default={"max_tokens": 64, "tokens_per_step": 16})
    with serving(AsyncLLM(Scripted()), limits) as url:
        yield f"{url}/v1"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")


def imported(name: str) -> Any:
    """Import a client, which may warn of whatever it likes, or skip."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def asked(text: str = QUESTION) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_openais_chat_and_a_second_turn_with_its_own_message(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model="ascii", messages=asked())
    said = first.choices[0].message
    assert said.content == ANSWER
    second = client.chat.completions.create(
        model="ascii", messages=[*asked(), said.model_dump(), *asked("Are you sure?")]
    )
    assert second.choices[0].message.content == ANSWER
    chunks = client.chat.completions.create(model="ascii", messages=asked(), stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER


def test_openais_responses(client: openai.OpenAI) -> None:
    first = client.responses.create(model="ascii", input=QUESTION, instructions="Be brief.")
    assert (first.output_text, first.status, first.error) == (ANSWER, "completed", None)
    assert first.usage is not None
    assert first.usage.input_tokens == len(f"<system>Be brief.<user>{QUESTION}{TURN}")
    again: list[Any] = [*asked(), *first.output, *asked("Are you sure?")]
    assert client.responses.create(model="ascii", input=again).output_text == ANSWER


def test_openais_responses_as_events(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="ascii", input=asked(), stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    begun, ended = kinds.index("output_text.delta"), kinds.index("output_text.done")
    assert kinds[:begun] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[ended:] == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == ANSWER
    assert events[-1].response.output_text == ANSWER  # type: ignore[union-attr]
    with client.responses.stream(model="ascii", input=QUESTION) as stream:
        assert stream.get_final_response().output_text == ANSWER


def test_openais_responses_with_logprobs(client: openai.OpenAI) -> None:
    answer = client.responses.create(
        model="ascii", input=QUESTION, include=["message.output_text.logprobs"], top_logprobs=2
    )
    [part] = answer.output[0].content  # type: ignore[union-attr]
    total = np.log(np.exp(SURE) + VOCAB_SIZE - 1)
    told = part.logprobs  # type: ignore[union-attr]
    assert told is not None
    assert "".join(each.token for each in told) == ANSWER
    for each in told:
        likeliest = [top.logprob for top in each.top_logprobs]
        assert [each.logprob, *likeliest] == pytest.approx([SURE - total] * 2 + [-total], abs=1e-5)


@pytest.mark.parametrize("newer", [False, True])
def test_langchains_chat(url: str, newer: bool) -> None:
    langchain = imported("langchain_openai")
    chat = langchain.ChatOpenAI(
        model="ascii", base_url=url, api_key="none", use_responses_api=newer
    )
    first = chat.invoke(QUESTION)
    assert first.text == ANSWER
    assert chat.invoke([("user", QUESTION), first, ("user", "Are you sure?")]).text == ANSWER
    assert "".join(chunk.text for chunk in chat.stream(QUESTION)) == ANSWER


def test_litellm(url: str) -> None:
    litellm = imported("litellm")
    to: dict[str, Any] = {"model": "openai/ascii", "api_base": url, "api_key": "none"}
    answer = litellm.completion(messages=asked(), **to)
    assert answer.choices[0].message.content == ANSWER
    chunks = litellm.completion(messages=asked(), stream=True, **to)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    text = litellm.text_completion(
        prompt=QUESTION + TURN, **to | {"model": "text-completion-openai/ascii"}
    )
    assert text.choices[0].text == ANSWER


def test_dspy(url: str) -> None:
    dspy = imported("dspy")
    model = dspy.LM("openai/ascii", api_base=url, api_key="none", cache=False)
    assert _texts(model(QUESTION)) == [ANSWER]
    with dspy.context(lm=model):
        assert dspy.Predict("question -> answer")(question=QUESTION).answer == "Paris"


def _texts(answers: Sequence[Any]) -> list[str]:
    """Return the texts of DSPy's answers, which are texts or hold them."""
    return [answer if isinstance(answer, str) else answer["text"] for answer in answers]
