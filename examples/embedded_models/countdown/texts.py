"""The texts to learn from: a problem, its one solution, and answers with mistakes."""

from __future__ import annotations

from functools import partial
from random import Random

from ..chat import ASSISTANT, USER
from ..mistakes import with_mistakes
from . import tokenizer
from .problems import Problem, draw_problem, solution, written

TOKENIZER = tokenizer.build()

WIDTHS = {48: 12, 64: 5, 144: 1}
"""Tokens in a row, and how often a batch is that wide. End tokens fill a row, as in LLaDA's
fine-tuning.
"""

NUM_NUMBERS = {2: 1, 3: 26, 4: 3}
"""Numbers in a problem, and how often one is drawn.
"""

MISTAKES = ("right", "random", "random", "misread")
"""The kinds of finished texts, as often as they are drawn."""


def draw_text(random: Random, mistaken: bool = False) -> tuple[list[int], list[int], list[int]]:
    """Return the ids of a problem's prompt, of its solution, and of what is shown in the solution's
    place: the same, or if `mistaken` perhaps one with mistakes.
    """
    problem = draw_problem(random, random.choices(list(NUM_NUMBERS), NUM_NUMBERS.values())[0])
    response = tokens(str(solution(problem)))
    shown = response
    if mistaken:
        others = partial(another, random)
        shown = with_mistakes(
            random, response, MISTAKES, lambda: tokens(misread(random, problem)), others
        )
    return tokens(f"{USER}{problem.prompt}{ASSISTANT}"), response, shown


def another(random: Random, token: int) -> int:
    """Return a random token: a digit for a digit, else any that is not special."""
    return (
        random.randrange(10)
        if token < 10
        else random.randrange(tokenizer.VOCABULARY[tokenizer.UNKNOWN])
    )


def misread(random: Random, problem: Problem) -> str:
    """Return an answer with one digit misread or other signs: consistent in itself, and not what
    was asked.
    """
    numbers = list(problem.numbers)
    random.shuffle(numbers)
    if random.random() < 0.5:
        place = random.randrange(len(numbers))
        digits = list(str(numbers[place]))
        digits[random.randrange(len(digits))] = str(random.randrange(10))
        numbers[place] = int("".join(digits))
    signs = sorted(random.choices("+-", k=len(numbers) - 1))
    return written(numbers, signs)


def tokens(text: str) -> list[int]:
    """Return the ids of a text."""
    ids: list[int] = TOKENIZER.encode(text).ids
    return ids
