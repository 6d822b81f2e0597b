"""The problems that the embedded model learns, and the grader of its answers."""

from random import Random

import pytest
from embedded_models.countdown.problems import (
    Problem,
    draw_problem,
    held_out,
    held_out_problems,
    is_correct,
    parse_prompt,
    solution,
)


@pytest.mark.parametrize("num_numbers", [2, 3, 4])
def test_the_taught_solution_of_a_drawn_problem_is_correct(num_numbers: int) -> None:
    random = Random(0)
    for _ in range(100):
        problem = draw_problem(random, num_numbers)
        text = solution(problem)
        assert text is not None
        assert is_correct(text, problem)
        assert not problem.is_held_out
        assert 1 <= problem.target <= 100


def test_held_out_problems_are_solvable_and_never_drawn() -> None:
    for problem in held_out_problems(Random(1), 10):
        assert problem.is_held_out
        assert solution(problem) is not None


def test_the_public_test_problems_are_held_out_in_any_order() -> None:
    assert len(held_out()) == 256
    assert parse_prompt("30,100,93 -> 23").digest in held_out()
    assert parse_prompt("93,30,100->23").is_held_out


def test_a_solution_has_one_step_per_operation() -> None:
    assert solution(parse_prompt("83,18,75 -> 10")) == "18+75=93,93-83=10<answer>18+75-83</answer>"
    assert solution(Problem((9, 5, 12), 48)) == "9-5=4,4*12=48<answer>(9-5)*12</answer>"
    assert solution(Problem((1, 1), 50)) is None


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("<answer>75+18-83</answer>", True),
        ("anything <answer>(75-83)+18</answer> after", True),
        ("<answer>-83+75+18</answer>", True),
        ("<answer>75+18-82</answer>", False),
        ("<answer>75+18-83", False),
        ("<answer>75+18-83+0</answer>", False),
        ("<answer>75**18-83</answer>", False),
        ("<answer>75/(18-18)-83</answer>", False),
        ("<answer>__import__('os')</answer>", False),
        ("<answer>" + "(" * 5000 + "</answer>", False),
    ],
)
def test_the_grader(answer: str, is_right: bool) -> None:
    assert is_correct(answer, Problem((83, 18, 75), 10)) is is_right


def test_division_is_exact() -> None:
    assert is_correct("<answer>7/3*3</answer>", Problem((7, 3, 3), 7))
    assert not is_correct("<answer>9/0</answer>", Problem((9, 0), 1))
