"""What the demo tells of its answers."""

from __future__ import annotations

import io
from random import Random

import demo
import numpy as np
from embedded_models.countdown.problems import Problem, held_out_problems, solution
from rich.console import Console

from dise_core import CompletionOutput, RequestOutput, Score, Usage


def answered(problem: Problem, is_right: bool, value: float) -> RequestOutput:
    text = solution(problem) if is_right else "1+1=2<answer>1+1</answer>"
    score = Score.mean_of(np.array([value]), np.arange(1))
    output = CompletionOutput(text or "", (), "stop", score, "dise", "response-text", ())
    return RequestOutput(problem.prompt, (), "toy", (output,), Usage(1, 1, 13, 13.0, 0.1))


def test_the_demo_counts_what_a_threshold_catches_and_what_revision_mends() -> None:
    problems = held_out_problems(Random(2), 4)
    before = [answered(p, r, s) for p, r, s in zip(problems, [1, 1, 0, 0], [-0.1, -3, -2, -0.2],
                                                   strict=True)]  # fmt: skip
    after = [answered(p, r, -0.1) for p, r in zip(problems, [1, 1, 1, 0], strict=True)]
    console = Console(file=io.StringIO(), width=500)
    demo.tell_threshold(console, before, problems, -1.0)
    demo.tell_revision(console, before, after, problems)
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert "2 of 4 solved" in told
    assert "1 of the 2 wrong answers are caught, and 1 of the 2 right ones held back" in told
    assert "3 of 4 are solved" in told
    assert f"{problems[2].prompt}: 1+1=2" in told
    assert problems[3].prompt not in told
