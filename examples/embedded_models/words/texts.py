"""The texts to learn from: a problem, its worked answer, and answers with mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random

from ..chat import ASSISTANT, SPECIAL, USER
from ..mistakes import with_mistakes
from . import tokenizer
from .problems import LARGEST, LARGEST_RESULT, OPERATORS, Problem, draw_problem

TOKENIZER = tokenizer.build()

WIDTHS = {24: 12, 48: 8, 64: 5, 160: 1}
"""Tokens in a row, and how often a batch is that wide. End tokens fill a row, as in LLaDA's
fine-tuning.
"""

ALIKE = [
    [TOKENIZER.token_to_id(f"Ġ{token}") for token in tokens]
    for tokens in (range(LARGEST_RESULT + 1), OPERATORS)
]
"""Tokens that are mistaken for one another: numbers and signs."""

MISTAKES = ("right", "random", "random", "misread", "misread")
"""The kinds of finished texts, as often as they are drawn."""


def draw_text(random: Random, mistaken: bool = False) -> tuple[list[int], list[int], list[int]]:
    """Return the ids of a problem's prompt, of its answer, and of what is shown in the answer's
    place: the same, or if `mistaken` perhaps one with mistakes.
    """
    problem = draw_problem(random)
    response = tokens(problem.answer)
    shown = response
    if mistaken:
        others = partial(another, random)
        shown = with_mistakes(
            random, response, MISTAKES, lambda: tokens(misread(random, problem).answer), others
        )
    return tokens(f"{USER}{problem.text}{ASSISTANT}"), response, shown


def another(random: Random, token: int) -> int:
    """Return a random token: a digit for a digit, a sign for a sign, else any but the special."""
    known: Sequence[int] = range(len(SPECIAL), TOKENIZER.get_vocab_size())
    return random.choice(next((alike for alike in ALIKE if token in alike), known))


def misread(random: Random, problem: Problem) -> Problem:
    """Return the problem with another operation, or one number misread: consistent in itself, and
    not what was asked. What is no problem stays as it is.
    """
    if not problem.kind:
        return problem
    what = random.choice(("kind", "x", "y"))
    if what == "kind":
        other = replace(problem, kind=random.choice("+-*/"))
    else:
        digits = str(getattr(problem, what))
        changed = int(digits[:-1] + random.choice("0123456789"))
        number = random.randint(1, LARGEST) if random.random() < 0.5 else changed
        other = replace(problem, **{what: number})
    is_whole = other.kind != "/" or (other.y > 0 and other.x % other.y == 0)
    return other if is_whole and 0 <= other.result <= LARGEST_RESULT else problem


def tokens(text: str) -> list[int]:
    """Return the ids of a text."""
    ids: list[int] = TOKENIZER.encode(text).ids
    return ids
