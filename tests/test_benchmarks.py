"""Every benchmark runs with --tiny, and prints a table with figures."""

from __future__ import annotations

import re
import subprocess
import sys
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
    "coherence.py": ("jevbench", "`make jevbench` runs it"),
    "corpus.py": ("ray", "workers are Ray's: the environment of `make cluster` has it"),
    "beside_llama_cpp.py": ("llama_cpp", "compares with llama.cpp: `make peers` runs it"),
    "vllm_overhead.py": ("vllm", "compares with vLLM: `make vllm` runs it"),
}
"""The modules that a benchmark needs beyond the extra dev, and why."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_benchmark_runs_and_prints_its_table(script: Path, tmp_path: Path) -> None:
    module, reason = NEEDS.get(script.name, ("dise_core", ""))
    if find_spec(module) is None:
        pytest.skip(reason)
    arguments = {"same_answers.py": [tmp_path / "answers.json"], "two_versions.py": [ROOT]}
    command = [sys.executable, script, *arguments.get(script.name, []), "--tiny"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    assert FIGURES.search(done.stdout), done.stdout
