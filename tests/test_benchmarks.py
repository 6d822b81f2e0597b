"""Every benchmark runs with --tiny, and prints a table with figures."""

from __future__ import annotations

import gc
import re
import runpy
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(
    path for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()
)
FIGURES = re.compile(r"^\|.*\| *[\d.]+ *\|", flags=re.MULTILINE)
"""A row of a table that holds a number."""

NEEDS = {
    "corpus.py": ("ray", "workers are Ray's: the environment of `make cluster` has it"),
    "beside_llama_cpp.py": ("llama_cpp", "compares with llama.cpp: `make peers` runs it"),
    "vllm_overhead.py": ("vllm", "compares with vLLM: `make vllm` runs it"),
}
"""The modules that a benchmark needs beyond the extra dev, and why."""


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let scripts import each other, and change neither malloc nor the garbage collector. What a
    script leaves open fails its own test, not a later one. Collections pass over what older tests
    left, which in a long run is most of the heap.
    """
    gc.freeze()
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setattr("dise_app.terminal.heap.keep_freed_memory", lambda: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    yield
    gc.collect()
    gc.unfreeze()


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import os; os.kill(os.getpid(), 4)", "by SIGILL"),
        ("raise SystemExit(3)", "with exit code 3"),
    ],
)
def test_a_worker_that_ends_is_said_to_have_ended(code: str, how: str) -> None:
    from command import EndedError, Worker  # type: ignore[import-not-found]

    worker = Worker("-c", code)
    with pytest.raises(EndedError, match=f"its process ended {how}"):
        worker.ask("anything")
    worker.close()


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("script", "more"),
    [
        *(pytest.param(path, (), id=path.name) for path in SCRIPTS),
        pytest.param(
            ROOT / "benchmarks/real_size.py",
            ("--model", "diffusion-gemma"),
            id="real_size.py of diffusion-gemma",
        ),
    ],
)
def test_a_benchmark_runs_and_prints_its_table(
    script: Path,
    more: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module, reason = NEEDS.get(script.name, ("dise_core", ""))
    if find_spec(module) is None:
        pytest.skip(reason)
    monkeypatch.setattr(sys, "argv", [str(script), "--tiny", *more])
    runpy.run_path(str(script), run_name="__main__")
    shown = capsys.readouterr().out
    assert FIGURES.search(shown), shown
