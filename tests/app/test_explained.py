"""Why a score is what it is, as `--explain` shows it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from dise_app.terminal.explained import show_explanation
from dise_core import ExplainedRead, ExplainedToken, Explanation
from tests.commands import Dise

GIVEN = (
    "score", "--prompt", "83,18,75 -> 10", "--response",
    "18+75=93,93-83=10<answer>18+75-83</answer>",
)  # fmt: skip
WRITTEN = ("generate", "83,18,75 -> 10", "--max-tokens", 48, "--block-length", 16)


def test_an_explanation_changes_nothing_else(dise: Dise) -> None:
    plain = json.loads(dise(*GIVEN, "--json").out)
    explained = json.loads(dise(*GIVEN, "--json", "--explain").out)
    tokens = explained["outputs"][0].pop("explanation")["tokens"]
    del plain["usage"]["seconds"], explained["usage"]["seconds"]
    assert explained == plain
    reported = [token["logprob"] for token in plain["outputs"][0]["tokens"] if token["selected"]]
    told = [token["logprob"] for token in tokens if token["counts"]]
    assert told == pytest.approx(reported, abs=1e-6)


def test_a_pipe_gets_plain_whole_lines(dise: Dise) -> None:
    run = dise(*GIVEN, "--explain", columns=40)
    lines = run.out.splitlines()
    assert "\x1b" not in run.out
    assert "    value = mean of the log-probabilities of 10 tokens = -0.0872" in lines
    assert any(
        line.startswith("    The model also reads an end token after the text, <|endoftext|>")
        for line in lines
    )
    assert not [line for line in lines if line != line.rstrip()]
    [behind] = [line for line in lines if line.endswith("after the response, never selected")]
    assert behind.split()[:2] == ["40", '"<|endoftext|>"']


def test_a_written_text_shows_its_steps_and_all_that_is_read_behind_it(dise: Dise) -> None:
    run = dise(*WRITTEN, "--explain")
    assert "written in 24 steps" in run.out
    assert "The text ends with <|endoftext|> x21, which the model also reads." in run.out
    [row] = [line for line in run.out.splitlines() if '"<answer>"' in line]
    assert row.split()[0] == "30"
    assert row.split()[-1] == "selected"
    assert row.split()[5].isdigit(), "the step"


def test_the_answers_to_a_file_and_to_gaps_are_explained_too(dise: Dise, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"prompt": "1,2 -> 3", "response": "1+2=3"}\n')
    assert dise("score", "--input", source, "--output", target, "--explain").code == 0
    [output] = json.loads(target.read_text())["outputs"]
    assert output["explanation"]["formula"].startswith("value = mean of")
    again = dise("score", "--input", source, "--output", target, "--resume")
    assert "explain" in again.err, "other settings"
    gap = dise("fill", "1+2={},3+4=7", "--max-tokens", 1, "--explain")
    assert "The model also reads the suffix after the gap" in gap.out


TOKEN = ExplainedToken(7, 1, "x\x1b]0;hi\x07\n", -0.5, (1,), None, None, True, "selected [red]")
READ = ExplainedRead(1, "target", 9, (), "the text's tokens", (7,), (-0.5,), 0)


def shown(explanation: Explanation, width: int = 80, is_terminal: bool = True) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=is_terminal, highlight=False)
    show_explanation(console, explanation)
    return Text.from_ansi(stream.getvalue()).plain


def test_a_narrow_terminal_folds_and_loses_no_number() -> None:
    explanation = Explanation("value = -0.5 " * 9, "About.", ("A note.",), (READ,), (TOKEN,))
    text = shown(explanation, 60)
    assert max(map(len, text.splitlines())) <= 60
    assert text.count("-0.5000") == 2


def test_control_characters_and_markup_are_shown_not_obeyed() -> None:
    text = shown(Explanation("f", "[bold]\x1b[2J", (), (READ,), (TOKEN,)), 200)
    assert not {"\x1b", "\x07"} & set(text)
    assert "selected [red]" in text
    assert "[bold]" in text


def test_of_many_reads_the_first_are_shown() -> None:
    text = shown(Explanation("f", "", (), (READ,) * 15, (TOKEN,)), 200)
    assert "and 3 more Reads: see --json" in text
    assert text.count("9 tokens, no mask") == 12
