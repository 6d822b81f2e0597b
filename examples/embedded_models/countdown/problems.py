"""Countdown problems: drawing them, writing their solutions, and grading answers."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import islice, permutations, product
from pathlib import Path
from random import Random

from dise_eval import CountdownGrader

LARGEST = 400
"""The largest number in a solution."""

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


@dataclass(frozen=True, slots=True)
class Problem:
    """Reach `target` with each of `numbers` exactly once."""

    numbers: tuple[int, ...]
    target: int

    @property
    def prompt(self) -> str:
        """The problem as the model reads it."""
        return f"{','.join(map(str, self.numbers))} -> {self.target}"

    @property
    def digest(self) -> str:
        """A key that does not depend on the numbers' order: 16 hexadecimal digits."""
        key = f"{','.join(map(str, sorted(self.numbers)))}->{self.target}"
        return hashlib.sha256(key.encode()).hexdigest()[:16]

    @property
    def is_held_out(self) -> bool:
        """True for the problems of held_out.txt, and for one in 256 of all others: none of them is
        trained on.
        """
        return self.digest in held_out() or self.digest.startswith("00")


@cache
def held_out() -> frozenset[str]:
    """Return the digests of the 256 public test problems."""
    return frozenset(Path(__file__).with_name("held_out.txt").read_text().split())


def parse_prompt(prompt: str) -> Problem:
    """Return the problem of a prompt such as "83,18,75 -> 10". Raises ValueError for
    anything else.
    """
    numbers, _, target = prompt.partition("->")
    return Problem(tuple(int(number) for number in numbers.split(",")), int(target))


def draw_problem(random: Random, num_numbers: int) -> Problem:
    """Return a solvable problem that is not held out; about one in 16 of three numbers needs * or
    /.
    """
    needs_product = num_numbers == 3 and random.random() < 1 / 16
    while (problem := _draw(random, num_numbers, needs_product)) is None or problem.is_held_out:
        pass
    return problem


def held_out_problems(random: Random, count: int) -> list[Problem]:
    """Return problems of three numbers that are held out from training and can be solved with + and
    -.
    """
    drawn = iter(lambda: _draw(random, 3, needs_product=False), object())
    return list(
        islice((problem for problem in drawn if problem is not None and problem.is_held_out), count)
    )


def solution(problem: Problem) -> str | None:
    """Return the one solution that the model is taught, None if there is none of its kind.

    A signed sum where one exists, first what is added and then what is subtracted, each in the
    problem's order; else one operation after the other with a * or /. One step per operation, then
    the expression in answer marks.
    """
    return next(_signed_sums(problem), None) or next(_chains(problem), None)


def is_correct(answer: str, problem: Problem) -> bool:
    """Return whether the text holds, in answer marks, an expression of the numbers, each once, that
    makes the target.
    """
    return CountdownGrader(problem.numbers, problem.target).grade(answer).is_correct


def _draw(random: Random, num_numbers: int, needs_product: bool) -> Problem | None:
    """Return a problem that is solvable with + and - if and only if it needs no product,
    or None.
    """
    numbers = [random.randint(1, 100) for _ in range(num_numbers)]
    kinds = random.choices("+-*/" if needs_product else "+-", k=num_numbers - 1)
    if needs_product and not {"*", "/"} & set(kinds):
        return None
    target = Fraction(numbers[0])
    for kind, number in zip(kinds, numbers[1:], strict=True):
        target = _apply(target, kind, number)
    if target.denominator != 1 or not 1 <= abs(target) <= 100:
        return None
    problem = Problem(tuple(random.sample(numbers, num_numbers)), abs(int(target)))
    is_sum = next(_signed_sums(problem), None) is not None
    return problem if is_sum != needs_product and solution(problem) is not None else None


def _signed_sums(problem: Problem) -> Iterator[str]:
    for signs in product("+-", repeat=len(problem.numbers)):
        ordered = sorted(zip(signs, problem.numbers, strict=True), key=lambda term: term[0] == "-")
        if (
            ordered[0][0] == "+"
            and sum(n if sign == "+" else -n for sign, n in ordered) == problem.target
        ):
            yield written([number for _, number in ordered], [sign for sign, _ in ordered[1:]])


def _chains(problem: Problem) -> Iterator[str]:
    for numbers in permutations(problem.numbers):
        for kinds in product("+-*/", repeat=len(numbers) - 1):
            values = [Fraction(numbers[0])]
            for kind, number in zip(kinds, numbers[1:], strict=True):
                values.append(_apply(values[-1], kind, number))
            if values[-1] == problem.target and all(
                v.denominator == 1 and 0 <= v <= LARGEST for v in values
            ):
                yield written(list(numbers), list(kinds))


def written(numbers: list[int], kinds: list[str]) -> str:
    """Return one step per operation, from left to right, and the expression in answer marks."""
    value, expression = numbers[0], str(numbers[0])
    steps = []
    for place, (kind, number) in enumerate(zip(kinds, numbers[1:], strict=True)):
        result = int(_apply(Fraction(value), kind, number))
        steps.append(f"{value}{kind}{number}={result}")
        if kind in "*/" and any(earlier in "+-" for earlier in kinds[:place]):
            expression = f"({expression})"
        expression += f"{kind}{number}"
        value = result
    return f"{','.join(steps)}<answer>{expression}</answer>"


def _apply(value: Fraction, kind: str, number: int) -> Fraction:
    return Fraction(value / number) if kind == "/" else Fraction(OPERATORS[kind](value, number))
