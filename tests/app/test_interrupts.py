"""Ctrl-C ends the command and a program, and what is written goes on from there.

SIGINT goes to a process of its own, once it has come as far as the test says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.commands import Run
from tests.jsonlines import answers_of, written

COMMAND = (sys.executable, "-c", "from dise_app.cli.main import main; main()")
MODULE = (sys.executable, "-m", "dise")
SCRIPT = (str(Path(sys.executable).with_name("dise")),)

SECONDS = 10.0
"""Within which a process must have ended: ten times what it takes on an idle machine."""

START_SECONDS = 120.0

PROMPTS = [f"{number},{number + 3},7 -> 10" for number in range(1, 65)]
SAMPLING = ("--max-tokens=24", "--steps=24", "--temperature=1", "--seed=1", "--max-num-seqs=16")


def started(*words: object, **environment: str) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*map(str, words)], text=True, env=os.environ | environment, **pipes)  # type: ignore[call-overload, no-any-return]


def interrupted(process: subprocess.Popen[str]) -> Run:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS)
    return Run(process.returncode, out, err)


def run(*words: object) -> Run:
    process = started(*words)
    out, err = process.communicate(timeout=START_SECONDS)
    return Run(process.returncode, out, err)


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + START_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


def num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize(
    ("command", "module"),
    [*((COMMAND, name) for name in ("pydantic", "typer", "torch._C", "tokenizers")),
     *((MODULE, name) for name in ("typing", "torch._C")),
     *((SCRIPT, name) for name in ("typing", "pathlib"))],
)  # fmt: skip
def test_the_command_ends_while_it_starts(command: Sequence[str], module: str) -> None:
    process = started(*command, "generate", *PROMPTS, PYTHONPROFILEIMPORTTIME="1")
    for line in process.stderr or ():
        if line.rstrip().endswith(f" {module}"):
            break
    ended = interrupted(process)
    assert (ended.code, ended.out) == (130, "")
    assert all(line.startswith("import time:") for line in ended.err.splitlines()[:-1])


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    return written(path, *({"prompt": prompt} for prompt in PROMPTS))


def test_a_file_that_is_answered_stays_whole_and_goes_on(prompts: Path, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    generate = (*COMMAND, "generate", "--input", prompts, *SAMPLING, "--output")
    assert run(*generate, whole).code == 0
    process = started(*generate, part)
    until(lambda: num_lines(part) > 0, process)
    assert interrupted(process) == Run(130, "", "")
    assert 0 < num_lines(part) < len(PROMPTS)
    assert answers_of(part) == answers_of(whole)[: num_lines(part)]
    assert run(*generate, part, "--resume").code == 0
    assert answers_of(part) == answers_of(whole)


PROGRAM = f"""
import asyncio
from dise import LLM, AsyncLLM, SamplingParams
PARAMS = SamplingParams(max_tokens=48, steps=48, seed=1, temperature=1.0)

def texts(prompts):
    answers = llm.generate(prompts, PARAMS)
    answers = runner.run(answers) if asyncio.iscoroutine(answers) else answers
    return [answer.outputs[0].text for answer in answers]

with asyncio.Runner() as runner:
    llm = MODEL("countdown-blocks")
    expected, num_free = texts({PROMPTS[:2]!r}), llm.predictor.room.num_free
    print("ready", flush=True)
    try:
        texts({PROMPTS!r})
    except KeyboardInterrupt as interrupt:
        kept = interrupt  # as a notebook does
    print(texts({PROMPTS[:2]!r}) == expected, llm.predictor.room.num_free == num_free)
raise kept
"""


@pytest.mark.parametrize("model", ["LLM", "AsyncLLM"])
def test_a_program_may_go_on_with_its_model(model: str) -> None:
    process = started(sys.executable, "-c", PROGRAM.replace("MODEL", model))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    ended = interrupted(process)
    assert ended.out == "True True\n", ended.err
    assert ended.err.endswith("KeyboardInterrupt\n")
