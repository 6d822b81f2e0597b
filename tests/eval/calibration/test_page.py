"""docs/confidence.md from top to bottom: each line finds what those before it wrote."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import Dise
from tests.jsonlines import written
from tests.pages import ROOT, lines_of, python_of

PAGE = ROOT / "docs" / "confidence.md"

KEY = {"experiment": "sampled", "model": "countdown", "settings": {"scorers": ["dise:last-10"]}}
BOTH = ["dise:last-10", "interleaved:response:k=2"]


def journal(folder: Path) -> None:
    """A journal of 300 questions in place of the experiment's, of which this test runs one."""
    random = np.random.default_rng(0)
    lines: list[Any] = [KEY]
    for number, value in enumerate(random.normal(size=300) - 1):
        right = bool(random.random() < 1 / (1 + np.exp(-4 * (value + 2))))
        scores = {name: {"value": value} for name in BOTH}
        answer = {"is_correct": right, "scores": scores}
        lines.append({"id": str(number), "answers": [answer]})
    written(folder / "labels" / "journal.jsonl", *lines)
    (folder / "both").mkdir()
    both = KEY | {"settings": {"scorers": BOTH}}
    written(folder / "both" / "journal.jsonl", both, *lines[1:])


def labelled(path: Path) -> None:
    """Two answers, of which the right one is mostly labelled so: 30 times each."""
    both = [("18+75=93,93-83=10<answer>18+75-83</answer>", 9), ("=+18,75-93=10+93", 2)]
    rows = [
        {"prompt": "83,18,75 -> 10", "response": text, "label": number % 10 < tenths}
        for number in range(30)
        for text, tenths in both
    ]
    written(path, *rows)


def fields(path: Path) -> None:
    """400 values, of which the surest half is right, and all others but a few are wrong."""
    values = [(number / -100, number < 200 or number % 10 == 0) for number in range(400)]
    names = ("score", "correct")
    rows = (dict(zip(names, pair, strict=True)) for pair in values)
    written(path, *({"path": f"/lines/{at}/qty", **row} for at, row in enumerate(rows)))


def test_the_page_from_top_to_bottom(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    labelled(tmp_path / "labelled.jsonl")
    fields(tmp_path / "fields.jsonl")
    printed = []
    for line in lines_of(PAGE):
        _, verb, *rest = shlex.split(line)
        if verb == "serve":
            continue  # test_calibrate.py serves with a calibration
        run = dise(verb, *rest, *(("--limit", 1) if verb == "eval" else ()))
        assert run.code == 0, (line, run.err)
        printed.append(run.out)
        if verb == "eval":
            journal(tmp_path / "runs")
    assert "at most 10% wrong with 95% confidence" in printed[2]
    assert "60 labels" in printed[3]
    assert "dise:last-10 is kept, as none differs from it beyond chance" in printed[4]
    assert "likely to be right" in printed[5]
    assert "/lines/*/qty: 400 labels of 400 questions, 55.0% right; platt" in printed[-1]
    [block] = python_of(PAGE)
    exec(compile(block, "confidence.md", "exec"), {})
