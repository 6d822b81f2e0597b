"""What is checked before the weights are read, and how their reading is shown."""

import json
import re
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from dise_app.terminal import progress
from dise_core import LLM, CheckpointError, InputError, SamplingParams
from dise_core.models.predictor import ReportShare, unshown
from dise_core.records import Record
from tests import sparse
from tests.commands import Dise
from tests.reference_llada import random_weights, write_checkpoint
from tests.refusals.command import CONFIG, LONG, TOO_LONG, UNREADABLE, unreadable

FAST = ("--max-tokens", 8, "--steps", 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unreadable(tmp_path / "model")


def test_a_request_that_passes_reads_the_weights(dise: Dise, folder: Path) -> None:
    for request_ in (
        ("generate", "a", *FAST),
        ("generate", "a", *FAST, "--regex", "a"),
        ("fill", "a{}b", *FAST),
        ("score", "--response", "ab"),
    ):
        run = dise(*request_, "--model", folder)
        assert (run.code, UNREADABLE in run.err) == (1, True)


def test_a_file_whose_lines_all_fail_needs_no_weights(
    dise: Dise, folder: Path, tmp_path: Path
) -> None:
    lines, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    run = ("generate", "--model", folder, "--input", lines, *FAST)
    lines.write_text(json.dumps({"prompt": LONG}) + "\n{}\n")
    refused = dise(*run, "--output", tmp_path / "none" / "out.jsonl")
    assert (refused.code, "cannot write --output" in refused.err) == (2, True)
    failed = dise(*run, "--output", output)
    assert failed.code == 1
    assert f"line 1: a prompt of 30 tokens with max_tokens=8 {TOO_LONG}" in failed.err
    assert "0 answered, 2 failed" in failed.err
    with lines.open("a") as file:
        file.write(json.dumps({"prompt": "a"}) + "\n")
    output.write_text("as it was\n")
    loaded = dise(*run, "--output", output, "--overwrite")
    assert (loaded.code, UNREADABLE in loaded.err) == (1, True)
    assert output.read_text() == "as it was\n"


DOORS = {
    "generate": ("generate", "a", "--model"),
    "judge": ("score", "--response", "1+2=3", "--judge"),
    "serve": ("serve", "--port", "0", "--model"),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_model_larger_than_the_machine_is_refused_at_each_door(tmp_path: Path, door: str) -> None:
    large = sparse.llama(tmp_path) if door == "judge" else sparse.llada(tmp_path)
    command = [sys.executable, "-m", "dise", *DOORS[door], str(large), "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert re.search(r"^dise: The checkpoint .* needs 1\d\d\d\.\d GiB of main", done.stderr, re.M)


def test_a_lazy_model_is_loaded_by_its_first_sound_request(folder: Path) -> None:
    llm = LLM(str(folder), lazy=True)
    with pytest.raises(ValueError, match=TOO_LONG):
        llm.generate(LONG)
    schema = {"constraint": "json-schema", "constraint_settings": {"schema": {"type": "strin"}}}
    with pytest.raises(InputError, match="schema /type = 'strin'"):
        llm.generate("a", SamplingParams.model_validate({"max_tokens": 8, **schema}))
    with pytest.raises(CheckpointError, match=UNREADABLE):
        llm.score("", "ab")
    with pytest.raises(CheckpointError, match=UNREADABLE):
        llm.load()


@pytest.mark.parametrize(
    "asked", [{}, {"constraint": "regex", "constraint_settings": {"regex": "a"}}]
)
def test_the_first_sound_request_shows_the_loading(tmp_path: Path, asked: Record) -> None:
    names = list[str]()

    def shown(name: str) -> AbstractContextManager[ReportShare]:
        names.append(name)
        return unshown(name)

    folder = str(write_checkpoint(tmp_path, CONFIG, random_weights(CONFIG)))
    llm = LLM(folder, lazy=True, shown=shown)
    fields = {"max_tokens": 8, "block_length": 8, "steps": 2, **asked}
    [answer] = llm.generate(["a"], SamplingParams.model_validate(fields))
    assert names == [folder]
    assert answer.outputs[0].text == "a" or not asked


def test_loading_tells_its_share(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = str(write_checkpoint(tmp_path, CONFIG, random_weights(CONFIG)))
    monkeypatch.setattr(progress, "INTERVAL", 0)
    for attention in ("sdpa", "eager"):  # by our own decoder, and by transformers
        LLM(folder, attn_implementation=attention, shown=progress.loading)
        line = rf"dise: loading {folder}: (\d+)% after \d+ s, about \d+ s left\n"
        told = re.findall(line, capsys.readouterr().err)
        assert len(told) > 10
        assert told[-1] == "100"
        assert told == sorted(told, key=int)
    monkeypatch.setattr(progress, "INTERVAL", 30)
    LLM(folder, shown=progress.loading)
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_the_share_while_it_loads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with progress.loading("a model") as told:
        told(0.43)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(r"loading a model 43% 0:00:0\d ━+[^\n]*? left \S", shown)
