"""Countdown: numbers that an expression makes a target of, each used once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from dise_eval.datasets.dataset import DataRow, Dataset, UnsuitableRowError

PUBLIC_PROBLEMS = "https://github.com/dllm-reasoning/d1/blob/main/dataset/countdown_cd3_test.jsonl"

SIGNS = ("++", "+-", "-+", "--")


def _instructed(row: DataRow) -> str:
    numbers, target = _posed(row)
    return (
        "Combine the numbers with +, -, * and / so that the result is the target. Use every "
        "number exactly once. Think "
        "step by step, then put the expression, without an equals sign, into \\boxed{}.\n\n"
        f"Numbers: {numbers}\nTarget: {target}"
    )


def _short(row: DataRow) -> str:
    numbers, target = _posed(row)
    return f"{','.join(map(str, numbers))} -> {target}"


def _posed(row: DataRow) -> tuple[list[int], int]:
    numbers = [int(number) for number in re.findall(r"\d+", row["input"])]
    return numbers, int(row["output"])


def _drawn(count: int, seed: int) -> list[DataRow]:
    random, rows = Random(seed), list[DataRow]()
    while len(rows) < count:
        numbers = [random.randint(1, 100) for _ in range(3)]
        target = abs(
            numbers[0] + random.choice((1, -1)) * numbers[1] + random.choice((1, -1)) * numbers[2]
        )
        if 1 <= target <= 100 and _is_held_out(numbers, target):
            order = random.sample(numbers, 3)
            rows.append({"input": ",".join(map(str, order)), "output": str(target)})
    return rows


def _is_held_out(numbers: Sequence[int], target: int) -> bool:
    """Return whether the model did not train on it: one problem in 256, by digest."""
    key = f"{','.join(map(str, sorted(numbers)))}->{target}"
    return hashlib.sha256(key.encode()).hexdigest().startswith("00")


def _choices(row: DataRow) -> tuple[list[str], int]:
    """Return four signed sums of the numbers, one of which makes the target, and its
    index. Raises UnsuitableRowError for a problem that no signed sum solves.
    """
    numbers, target = _posed(row)
    for order in (numbers, sorted(numbers, reverse=True)):
        texts = {signs: _worked(order, signs) for signs in SIGNS}
        solution = next((signs for signs, (_, value) in texts.items() if value == target), None)
        if solution is not None:
            shuffled = Random(f"{numbers}->{target}").sample(sorted(texts), 4)
            return [texts[signs][0] for signs in shuffled], shuffled.index(solution)
    raise UnsuitableRowError("no signs make the target")


def _worked(numbers: Sequence[int], signs: str) -> tuple[str, int]:
    value, expression, steps = numbers[0], str(numbers[0]), []
    for sign, number in zip(signs, numbers[1:], strict=True):
        result = value + number if sign == "+" else value - number
        steps.append(f"{value}{sign}{number}={result}")
        value, expression = result, f"{expression}{sign}{number}"
    return f"{','.join(steps)}<answer>{expression}</answer>", value


COUNTDOWN = Dataset(
    name="countdown",
    version="instruct-1",
    prompt=_instructed,
    answer=lambda row: list(_posed(row)),
    grader="countdown",
    draw=_drawn,
    row_format='{"input": "44,19,7", "output": "56"}',
    file_at=PUBLIC_PROBLEMS,
)

SHORT = replace(
    COUNTDOWN, name="countdown-short", version="short-1", prompt=_short, id_prefix="countdown"
)
"""The same problems in the embedded model's format: 83,18,75 -> 10."""

CHOICE = replace(
    SHORT,
    name="countdown-choice",
    version="choice-1",
    answer=lambda row: _posed(row)[1],
    choices=_choices,
    grader=None,
)

ANSWERS = Dataset(
    name="countdown-answers",
    version="as-asked",
    prompt="question",
    answer="ground_truth",
    grader="countdown",
    row_format='{"question": "...", "ground_truth": [[83, 18, 75], 10], "response": "..."}',
    id_prefix="countdown",
)
"""The same problems as some model was asked them, each with the answer that it gave."""
