"""Gaps in a text through POST /v1/completions and `dise fill`, on models that count letters."""

import json
import re
from pathlib import Path

import openai
import pytest

from dise_core import AsyncLLM
from tests.app.serving import Serve
from tests.commands import Dise
from tests.core.test_fill import Alphabet


@pytest.fixture(scope="module")
def url(served: Serve) -> str:
    return served(AsyncLLM(Alphabet()))


def test_the_server_fills_the_gap_before_a_suffix(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="toy", prompt=["a", "b"], suffix="e", max_tokens=3, logprobs=0
    )
    assert [choice.text for choice in answer.choices] == ["bcd", "bcd"]
    told = answer.choices[0].logprobs
    assert told is not None
    assert told.tokens == ["b", "c", "d"]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 6)
    [choice] = client.completions.create(
        model="toy", prompt="a", suffix="h", max_tokens=12,
        extra_body={"dise": {"length": "cal", "length_settings": {"start": 5}}},
    ).choices  # fmt: skip
    found = choice.model_dump()["dise"]["length"]
    assert len(choice.text) == max(found["trace"], key=lambda step: step["score"])["num_tokens"]


def test_a_gap_is_streamed_without_what_follows(client: openai.OpenAI) -> None:
    chunks = client.completions.create(
        model="toy", prompt="a", suffix="e", max_tokens=3, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "bcd"


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_verb_shows_the_whole_text_and_each_gap(dise: Dise, is_whole: bool) -> None:
    text = "83,18,75 -> 10 18+{}93-83=10<answer>{}<answer>"
    pieces = text.split("{}")
    run = dise("fill", text, "--max-tokens", 2, *([] if is_whole else ["--json"]))
    assert (run.code, run.err) == (0, "")
    if is_whole:
        shown = run.out.splitlines()[0]
        assert all(piece in shown for piece in pieces)
        assert run.out.count("score -") == 2
        return
    record = json.loads(run.out)
    first, second = (gap["outputs"][0]["text"] for gap in record["gaps"])
    assert record["text"] == pieces[0] + first + pieces[1] + second + pieces[2]
    assert record["gaps"][1]["prompt"] == pieces[0] + first + pieces[1]
    assert record["gaps"][0]["suffix"] == pieces[1]


def test_a_gap_holds_what_its_expression_says_between_its_spaces(dise: Dise) -> None:
    asked = "--model", "word-problems", "--regex", "[0-9]+", "--max-tokens", 2, "--json"
    run = dise("fill", "Tom has 12 apples. He eats {} of them.", *asked)
    assert re.fullmatch(r".* He eats [0-9]+ of them\.", json.loads(run.out)["text"])


def test_a_file_of_gaps_is_filled(dise: Dise, tmp_path: Path) -> None:
    path = tmp_path / "gaps.jsonl"
    path.write_text('{"prefix": "1+", "suffix": "=3"}\n')
    run = dise("fill", "--input", path, "--max-tokens", 1)
    [record] = map(json.loads, run.out.splitlines())
    assert (record["prompt"], record["suffix"], len(record["outputs"][0]["token_ids"])) == (
        "1+", "=3", 1,
    )  # fmt: skip
    assert run.code == 0
