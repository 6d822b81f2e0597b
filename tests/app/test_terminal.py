"""What a person sees: several prompts, standard input, help, lists, progress, what is missing."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.main import get_command

from dise_app import extras
from dise_app.cli.verbs import app
from dise_app.terminal import progress
from dise_app.terminal.lines import tell
from dise_strategies.revisers.remask import Remask
from tests.commands import Dise

PROBLEM = "83,18,75 -> 10"
FAST = ("--max-tokens", 12, "--block-length", 12, "--tokens-per-step", 12)


Pipe = Callable[[bytes], None]


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """Return a function that pipes its argument into the command."""
    with ExitStack() as stack:

        def pipe(content: bytes) -> None:
            reading, writing = os.pipe()
            os.write(writing, content)
            os.close(writing)
            monkeypatch.setattr(sys, "stdin", stack.enter_context(os.fdopen(reading)))

        yield pipe


# Several prompts.


def test_one_bad_prompt_of_several_fails_alone(dise: Dise) -> None:
    run = dise("generate", PROBLEM, "hello", "1,2 -> 3", *FAST)
    assert run.code == 1
    assert PROBLEM in run.out
    assert "1,2 -> 3" in run.out
    first, closing = run.err.splitlines()
    assert first.startswith("dise: prompt 2: the model's vocabulary has no 'h'")
    assert closing == "dise: 2 answered, 1 failed"


# Standard input.


@pytest.mark.parametrize("words", [("-",), ()])
def test_a_prompt_may_be_piped_in(dise: Dise, stdin: Pipe, words: tuple[str, ...]) -> None:
    stdin(b"\xef\xbb\xbf1,2 -> 3\r\n")
    run = dise("generate", *words, *FAST, "--json")
    assert (run.code, json.loads(run.out)["prompt"]) == (0, "1,2 -> 3")


def test_a_response_may_be_piped_in(dise: Dise, stdin: Pipe) -> None:
    values = []
    for words in (("--response", "1+2=3"), ("--response", "-"), ()):
        stdin(b"1+2=3\n")
        run = dise("score", "--prompt", "1,2 -> 3", *words, "--json")
        values.append(json.loads(run.out)["outputs"][0]["score"]["value"])
    assert values[0] == values[1] == values[2]


def test_an_empty_or_broken_pipe_is_one_line(dise: Dise, stdin: Pipe) -> None:
    for content, words, told in (
        (b"", ("-",), "the prompt is empty"),
        (b"a\xff", ("-",), "standard input is not UTF-8: byte 0xff at 1"),
        (b"1\n", ("-", "-"), "- is given twice"),
    ):
        stdin(content)
        run = dise("generate", *words, *FAST)
        assert (run.code, run.out, len(run.err.splitlines())) == (2, "", 1)
        assert told in run.err


# Files: one rule for --output.


def test_a_calibration_is_not_overwritten_unless_asked_for(dise: Dise, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("{}")
    (tmp_path / "s.jsonl").write_text("{}\n")
    asked = ("calibrate", tmp_path / "s.jsonl", "--output", tmp_path / "c.json")
    run = dise(*asked)
    assert (run.code, "exists already: --overwrite replaces it" in run.err) == (2, True)
    assert "exists already" not in dise(*asked, "--overwrite").err


# Lists and help.


def test_the_help_has_headings_and_keeps_its_brackets(dise: Dise) -> None:
    text = dise("generate", "--help").out
    headings = (
        "Most used",
        "Options",
        "Many requests from a file",
        "How the model is loaded and run",
        "How the answer is written",
        "How the answer is scored",
    )
    places = [text.index(f"\n{heading}:\n") for heading in headings]
    assert places == sorted(places)
    first = [line.split()[0] for line in text[: places[1]].splitlines() if line.startswith("  --")]
    assert first == ["--model", "--max-tokens", "--temperature", "--n", "--seed", "--scorer",
                     "--selector", "--json"]  # fmt: skip
    assert text.index("--unmasking") > text.index("How the answer is written")
    assert "[default: the paper's, and" in dise("eval", "uncertainty", "--help").out


def every_verb(group: Any, parent: Any = None) -> Iterator[Any]:
    """Yield the context of each verb, and of those below it."""
    context = group.context_class(group, info_name=group.name, parent=parent)
    yield context
    for name in group.list_commands(context) if hasattr(group, "list_commands") else ():
        yield from every_verb(group.get_command(context, name), context)


def test_the_help_of_every_verb_tells_all_in_80_columns_and_breaks_no_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an option is about stands there as it was written, but for spaces."""
    monkeypatch.setenv("COLUMNS", "80")
    verbs = [*every_verb(get_command(app))]
    assert len(verbs) > 20
    for context in verbs:
        verb, text = context.command, context.get_help()
        words = " ".join(text.split())
        assert max(map(len, text.splitlines())) <= 80
        assert not re.search(r"<(int|str|float|path|bool)|\blist\[", text)
        told = [verb.help, *(getattr(option, "help", "") for option in verb.get_params(context))]
        if hasattr(verb, "list_commands"):
            below = [verb.get_command(context, name) for name in verb.list_commands(context)]
            told += [its.help.partition("\n\n")[0] for its in below]
        missing = [about for about in told if " ".join((about or "").split()) not in words]
        assert not missing, context.command_path


def test_plugins_of_a_kind_tell_every_setting(dise: Dise) -> None:
    text = dise("plugins", "--kind", "scorer").out
    assert "num_samples" in text
    assert ">= 1, <= 1000000" in text
    assert "remask" not in text
    [row] = json.loads(dise("plugins", "--kind", "reviser", "--json").out)["plugins"]
    assert [each["name"] for each in row["settings"]] == list(Remask.model_fields)
    run = dise("plugins", "--kind", "unmasking")
    assert "low-confidence" in run.out
    run = dise("plugins", "--kind", "length-controllers")
    assert "mask_size" in run.out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_error_is_folded_between_words_on_a_terminal_and_one_line_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    sentence = "the dtype bfloat16-or-float16 takes 123,456 tokens, " * 4 + "w" * 90
    tell(sentence)
    assert capsys.readouterr().err == f"dise: {sentence}\n"
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    tell(sentence)
    lines = terminal.getvalue().splitlines()
    assert " ".join(lines) == f"dise: {sentence}"
    assert all(len(line) <= 80 for line in lines[:-1])
    assert lines[-1] == "w" * 90


# What is missing.


def test_a_missing_extra_is_one_line() -> None:
    error = ModuleNotFoundError("No module named 'scipy'", name="scipy.special")
    told = str(extras.missing(error, "dise calibrate"))
    assert told.startswith(
        "dise calibrate needs scipy, of the extra 'eval', which is not installed"
    )
    sklearn = extras.missing(ModuleNotFoundError(name="sklearn.metrics"))
    assert "pip install scikit-learn" in str(sklearn)
    assert extras.missing(ModuleNotFoundError(name="nobody")) is None


@pytest.mark.parametrize(
    "module", ["datasets", "math_verify", "matplotlib", "sklearn", "scipy", "fastapi", "uvicorn",
               "prometheus_client", "gguf", "lm_eval"]
)  # fmt: skip
def test_every_extra_is_known(module: str) -> None:
    assert requires("dise")
    assert extras.missing(ModuleNotFoundError(name=module)) is not None


# Progress.


def test_a_bar_stands_on_terminals_only() -> None:
    for is_terminal, is_shown in ((True, True), (False, False)):
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=is_terminal, width=60)
        with progress.progress_bar(3, console) as advance:
            advance(2)
            time.sleep(0.15)
        assert ("2/3" in stream.getvalue()) is is_shown


def test_a_pipe_is_told_the_count_in_lines_on_standard_error(
    dise: Dise, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    data = ("--dataset", "countdown-short", "--limit", 4, "--score", "dise:full")
    run = dise("eval", "uncertainty", *data, *FAST, "--output", tmp_path / "run")
    assert run.code == 0
    told = re.findall(
        r"^dise: (\d)/4 done after \d+ s(?:, about \d+ s left)?$", run.err, flags=re.MULTILINE
    )
    assert told
    assert told == sorted(told)
    monkeypatch.setattr(progress, "INTERVAL", 30)
    assert dise("generate", PROBLEM, "1,2 -> 3", *FAST).err == ""


def test_a_pipe_is_told_even_while_nothing_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    told, end = "", time.monotonic() + 20
    with progress.progress_bar(3, Console(file=io.StringIO())):
        while "dise: 0/3 done after 0 s\n" not in told and time.monotonic() < end:
            told += capsys.readouterr().err
            time.sleep(0.01)
    assert "dise: 0/3 done after 0 s\n" in told
    assert "dise-progress" not in {thread.name for thread in threading.enumerate()}


def test_loading_is_shown_unless_the_hub_shows_its_own_bars(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for model, is_shown in (("countdown", True), ("someone/a-model", False)):
        with progress.opening(model):
            time.sleep(0.15)
        assert (f"loading {model}" in capsys.readouterr().err) is is_shown
