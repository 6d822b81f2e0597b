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


@pytest.mark.parametrize("answer", ["<answer>75+18-82</answer>", "<answer>75+18-83"])
def test_an_answer_without_the_numbers_in_marks_is_wrong(answer: str) -> None:
    assert not is_correct(answer, Problem((83, 18, 75), 10))
