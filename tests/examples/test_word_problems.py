"""The word problems that an embedded model learns, and the texts it learns them from."""

import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from embedded_models.words import texts, tokenizer
from embedded_models.words.problems import OPERATORS, OTHER_ANSWER, Problem, draw_problem, listed

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("held_out", [False, True])
def test_a_drawn_problem_has_a_finished_text_and_a_right_answer(held_out: bool) -> None:
    random = Random(0)
    for _ in range(1000):
        problem = draw_problem(random, held_out)
        assert problem.text
        assert not set("{}[]|") & set(problem.text + problem.answer)
        if not problem.kind:
            assert problem.answer == OTHER_ANSWER
            continue
        found = re.fullmatch(r"(\d+) ([-+*/]) (\d+) = (\d+)( [a-z ]+)?", problem.answer)
        assert found, problem
        x, kind, y, result = found.groups()[:4]
        assert eval(f"{x} {kind} {y}") == int(result) >= 1


def test_held_out_patterns_are_in_no_other_list() -> None:
    for kind in OPERATORS:
        held_out = listed("patterns", f"held out {kind}")
        assert held_out
        assert not set(held_out) & set(listed("patterns", kind))


def test_a_misread_problem_is_consistent_in_itself() -> None:
    random = Random(3)
    problem = Problem("", "/", 18, 3, "eggs")
    drawn = [texts.misread(random, problem) for _ in range(300)]
    assert {one.kind for one in drawn} == set("+-*/")
    for one in drawn:
        assert eval(f"{one.x} {one.kind} {one.y}") == one.result >= 0


def test_a_new_tokenizer_has_numbers_as_tokens_and_spells_any_text() -> None:
    made = tokenizer.train(num_texts=200)
    for text in ("Tom has 12 apples.", " two  spaces\n", "Größe 日本", "200"):
        assert made.decode(made.encode(text).ids) == text
    assert len(made.encode("12").ids) == len(made.encode("200").ids) == 1


def test_they_are_printed_as_rows_that_an_evaluation_reads() -> None:
    command = [sys.executable, "-m", "embedded_models.words.problems", "--count", "3"]
    run = subprocess.run(command, cwd=EXAMPLES, check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(rows) == 3
    assert all(eval(row["Equation"]) == row["Answer"] for row in rows)
