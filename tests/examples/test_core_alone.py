"""Core, strategies and adapters score and write without command, server and guests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT

PACKAGES = ("dise_core", "strategies/dise_strategies", "adapters/dise_adapters")
OTHERS = ("dise", "dise_app", "dise_cluster", "dise_decide", "dise_eval", "dise_sglang")

METADATA = "Metadata-Version: 2.1\nName: dise\nVersion: 0.1.0\n"
ENTRY_POINTS = "[dise]\nstrategies = dise_strategies.plugin\nadapters = dise_adapters.plugin\n"

SCRIPT = f"""
from importlib.util import find_spec

import dise_core
from dise_core import LLM, SamplingParams, ScoringParams

assert [name for name in {OTHERS!r} if find_spec(name)] == []
llm = LLM("countdown")
assert not llm.catalog.problems, llm.catalog.problems
text = "18+75=93,93-83=10<answer>18+75-83</answer>"
params = ScoringParams(selector="response-text")
[scored] = llm.score("83,18,75 -> 10", text, params)
[written] = llm.generate("83,18,75 -> 10", SamplingParams(max_tokens=48, block_length=16))
print(dise_core.__file__)
print(scored.outputs[0].score.value)
print(written.outputs[0].text)
"""


def test_core_strategies_and_adapters_alone_score_and_write(tmp_path: Path) -> None:
    for package in PACKAGES:
        (tmp_path / Path(package).name).symlink_to(ROOT / package)
    information = tmp_path / "dise-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(METADATA)
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    # -S: no .pth file, such as that of an editable installation, puts the other packages back.
    libraries = [path for path in sys.path if Path(path).name == "site-packages"]
    path = os.pathsep.join([str(tmp_path), *libraries])
    environment = {**os.environ, "PYTHONPATH": path, "DISE_PLUGINS": ""}
    done = subprocess.run(
        [sys.executable, "-S", "-c", SCRIPT],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    file, value, text = done.stdout.splitlines()
    assert Path(file).is_relative_to(tmp_path)
    assert float(value) == pytest.approx(-0.0538, abs=2e-3)  # as README.md shows
    assert text == "18+75=93,93-83=10<answer>18+75-83</answer>"
