"""Clients that others wrote, plain: with the fields that they send of themselves, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import openai
import pytest
from pydantic import BaseModel

from dise_app.server.limits import Limits
from dise_core import AsyncLLM
from dise_core.arrays import Ids
from dise_core.testing.toy_model import Logits
from tests.app.serving import Serve, imported, serving
from tests.ascii_model import END, VOCAB_SIZE, AsciiPredictor

pytestmark = pytest.mark.filterwarnings("ignore")

ANSWER = "[[ ## answer ## ]]\nParis\n\n[[ ## completed ## ]]"
QUESTION = "What is the capital of France?"
PLACE = (
    '{"city": "Paris", "kind": "museum", "room": {"name": "Apollon", "size": 4.5}, "note": null}'
)
ASKED_PLACE = "Where is the Louvre?"
ASKED_TOOL = "How warm is Paris?"
TOLD = "It is 21 degrees."
SCRIPTS = {
    QUESTION: ANSWER,
    ASKED_PLACE: PLACE,
    ASKED_TOOL: '{"name": "weather", "arguments": {"city": "Paris"}}',
    "21 C": TOLD,
}
"""What is written after a conversation: by the last of these that stands in it."""

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

    def logits(self, ids: Ids) -> Logits:
        sure = np.full(len(ids), END)
        start = _last(ids, self._turn)
        asked = self.tokenizer.decode(ids[:start])
        script = SCRIPTS[max(SCRIPTS, key=asked.rfind)]
        part = self.tokenizer.encode(script)[: len(ids) - start]
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
def url(served: Serve) -> str:
    limits = Limits(grace=5, default={"max_tokens": 128, "tokens_per_step": 16})
    return f"{served(AsyncLLM(Scripted()), limits)}/v1"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


class Room(BaseModel):
    name: str
    size: float


class Place(BaseModel):
    """A place in a city."""

    city: str
    kind: Literal["tower", "museum"]
    room: Room
    note: str | None


class weather(BaseModel):  # noqa: N801
    """How warm a city is."""

    city: str


LOUVRE = Place(city="Paris", kind="museum", room=Room(name="Apollon", size=4.5), note=None)


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


def test_openais_answers_are_of_a_class(client: openai.OpenAI) -> None:
    to: dict[str, Any] = {"model": "ascii", "messages": asked(ASKED_PLACE)}
    answer = client.chat.completions.parse(response_format=Place, **to)
    assert answer.choices[0].message.parsed == LOUVRE
    with client.chat.completions.stream(response_format=Place, **to) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == LOUVRE
    for kind in ("json_object", "text"):
        plain = client.chat.completions.create(response_format={"type": kind}, **to)
        assert Place.model_validate_json(plain.choices[0].message.content) == LOUVRE
    newer = client.responses.parse(model="ascii", input=ASKED_PLACE, text_format=Place)
    assert newer.output_parsed == LOUVRE
    assert newer.text is not None
    assert newer.text.format.name == "Place"  # type: ignore[union-attr]


class Left(BaseModel):
    left: int


def left(model: str, asking: str) -> Any:
    """Return what an embedded model answers as a class."""
    with (
        serving(AsyncLLM(model)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client,
    ):
        to: dict[str, Any] = {"model": model, "messages": asked(asking)}
        return client.chat.completions.parse(response_format=Left, **to).choices[0].message.parsed


def test_an_answer_of_a_class_comes_from_word_problems_and_not_from_countdown() -> None:
    assert isinstance(
        left("word-problems", "Tom has 12 apples. He eats 5. How many are left?"), Left
    )
    with pytest.raises(openai.BadRequestError, match="tokens cannot spell any answer"):
        left("countdown", "1,2 -> 3")


def test_openais_tools_are_called_and_their_results_read(client: openai.OpenAI) -> None:
    tools = [openai.pydantic_function_tool(weather), openai.pydantic_function_tool(Place)]
    to: dict[str, Any] = {"model": "ascii", "tools": tools, "tool_choice": "required"}
    [choice] = client.chat.completions.parse(messages=asked(ASKED_TOOL), **to).choices
    [call] = choice.message.tool_calls or []
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert call.function.parsed_arguments == weather(city="Paris")
    with client.chat.completions.stream(messages=asked(ASKED_TOOL), **to) as stream:
        [streamed] = stream.get_final_completion().choices
    assert streamed.message.tool_calls[0].function == call.function
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "21 C"}
    turns: list[Any] = [*asked(ASKED_TOOL), choice.message, result]
    answer = client.chat.completions.create(messages=turns, **to | {"tool_choice": "none"})
    assert answer.choices[0].message.content == TOLD


def test_openais_chosen_function_is_told_its_arguments_alone(client: openai.OpenAI) -> None:
    [choice] = client.chat.completions.parse(
        model="ascii",
        messages=asked(ASKED_PLACE),
        tools=[openai.pydantic_function_tool(weather), openai.pydantic_function_tool(Place)],
        tool_choice={"type": "function", "function": {"name": "Place"}},
    ).choices
    [call] = choice.message.tool_calls or []
    assert (choice.finish_reason, call.function.arguments) == ("stop", PLACE)
    assert call.function.parsed_arguments == LOUVRE


@pytest.mark.parametrize("method", ["function_calling", "json_schema", "json_mode", "newer"])
def test_langchains_structured_output(url: str, method: str) -> None:
    langchain, newer = imported("langchain_openai"), method == "newer"
    chat = langchain.ChatOpenAI(
        model="ascii", base_url=url, api_key="none", use_responses_api=newer
    )
    model = chat.with_structured_output(Place, method="json_schema" if newer else method)
    assert model.invoke(ASKED_PLACE) == LOUVRE


def test_langchains_tools(url: str) -> None:
    chat = imported("langchain_openai").ChatOpenAI(model="ascii", base_url=url, api_key="none")
    called = chat.bind_tools([weather, Place], tool_choice="any").invoke(ASKED_TOOL)
    [call] = called.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Paris"})
    result = {"role": "tool", "tool_call_id": call["id"], "content": "21 C"}
    assert chat.invoke([("user", ASKED_TOOL), called, result]).text == TOLD


@pytest.mark.parametrize("mode", ["TOOLS", "JSON", "JSON_SCHEMA", "MD_JSON"])
def test_instructor(client: openai.OpenAI, mode: str) -> None:
    instructor = imported("instructor")
    of_instructor = instructor.from_openai(client, mode=instructor.Mode[mode])
    to = {"model": "ascii", "messages": asked(ASKED_PLACE), "max_retries": 0}
    assert of_instructor.create(response_model=Place, **to).model_dump() == LOUVRE.model_dump()


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


def test_dspys_adapter_for_json(url: str) -> None:
    dspy = imported("dspy")
    model = dspy.LM("openai/ascii", api_base=url, api_key="none", cache=False)

    class Where(dspy.Signature):  # type: ignore[misc, name-defined]
        question: str = dspy.InputField()
        city: str = dspy.OutputField()
        kind: Literal["tower", "museum"] = dspy.OutputField()
        room: Room = dspy.OutputField()
        note: str | None = dspy.OutputField()

    with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
        found = dspy.Predict(Where)(question=ASKED_PLACE)
    assert Place(**found) == LOUVRE
    assert len(model.history) == 1


@pytest.fixture(scope="module")
def score(client: openai.OpenAI) -> float:
    """The answer's score, in the object that OpenAI's own client keeps."""
    [choice] = client.chat.completions.create(model="ascii", messages=asked()).choices
    assert choice.model_extra is not None
    return float(choice.model_extra["dise"]["score"]["value"])


def with_headers(url: str, newer: bool) -> Any:
    return imported("langchain_openai").ChatOpenAI(
        model="ascii",
        base_url=url,
        api_key="none",
        use_responses_api=newer,
        include_response_headers=True,
    )


@pytest.mark.parametrize("newer", [False, True])
def test_langchain_keeps_the_score_in_headers(url: str, newer: bool, score: float) -> None:
    told = with_headers(url, newer).invoke(QUESTION).response_metadata["headers"]
    assert float(told["x-dise-score"]) == score


@pytest.mark.parametrize("newer", [False, True])
def test_a_node_of_langgraph_sees_the_score(url: str, newer: bool, score: float) -> None:
    langgraph, chat = imported("langgraph.graph"), with_headers(url, newer)
    graph = langgraph.StateGraph(langgraph.MessagesState)
    graph.add_node("ask", lambda state: {"messages": [chat.invoke(state["messages"])]})
    seen: list[float] = []

    def look(state: Any) -> dict[str, list[Any]]:
        headers = state["messages"][-1].response_metadata["headers"]
        seen.append(float(headers["x-dise-score"]))
        return {"messages": []}

    graph.add_node("look", look)
    for start, end in ((langgraph.START, "ask"), ("ask", "look"), ("look", langgraph.END)):
        graph.add_edge(start, end)
    graph.compile().invoke({"messages": [("user", QUESTION)]})
    assert seen == [score]


def test_litellm_keeps_the_score(url: str, score: float) -> None:
    to: dict[str, Any] = {"model": "openai/ascii", "api_base": url, "api_key": "none"}
    [choice] = imported("litellm").completion(messages=asked(), **to).choices
    assert choice.provider_specific_fields["dise"]["score"]["value"] == score


def test_dspy_keeps_the_score(url: str, score: float) -> None:
    dspy = imported("dspy")
    model = dspy.LM("openai/ascii", api_base=url, api_key="none", cache=False)
    model(QUESTION)
    [choice] = model.history[-1]["response"].provider_data["choices"]
    assert choice["dise"]["score"]["value"] == score


def _texts(answers: Sequence[Any]) -> list[str]:
    """Return the texts of DSPy's answers, which are texts or hold them."""
    return [answer if isinstance(answer, str) else answer["text"] for answer in answers]
