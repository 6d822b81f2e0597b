"""Countdown: an expression that uses each given number once and equals the target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from dise_eval.graders.arithmetic import ExpressionError, value_of
from dise_eval.graders.extract import MAX_TEXT, answer_marks, last_box
from dise_eval.graders.verdict import Grader, Mode, Verdict

LATEX = (("\\div", "/"), ("\\times", "*"), ("\\cdot", "*"))
TYPOGRAPHY = (
    *LATEX,
    ("\\left", ""),
    ("\\right", ""),
    ("\N{MULTIPLICATION SIGN}", "*"),
    ("\N{DIVISION SIGN}", "/"),
    ("$", ""),
)


class CountdownGrader(Grader):
    """Grades an expression of the given numbers against the target.

    d1: takes the last box, else the answer marks if the box is not closed, else the whole
    text; allows Python's operators and an error below 1e-5. robust: takes the last box,
    else the answer marks; allows only + - * / and brackets; exact.
    """

    def __init__(self, numbers: Sequence[int], target: int, mode: Mode = "robust") -> None:
        self._numbers = sorted(numbers)
        self._target = target
        self._mode = mode
        self.version = f"countdown-{mode}-1"

    @classmethod
    def of(cls, truth: object, mode: Mode = "robust") -> CountdownGrader:
        """Return the grader of [numbers, target]. Raises ValueError for another truth."""
        match truth:
            case [[*items], int(target)]:
                numbers = [item for item in items if isinstance(item, int)]
                if len(numbers) == len(items):
                    return cls(numbers, target, mode)
        raise ValueError(f"must be [[numbers], target], not {truth!r:.80}")

    def grade(self, response: str) -> Verdict:
        text = response[-MAX_TEXT:]
        has_box = "\\boxed" in text or "\\fbox" in text
        extracted = last_box(text) or (
            answer_marks(text) if has_box or self._mode == "robust" else None
        )
        if extracted is None and self._mode == "robust":
            return Verdict(False, None, "no box and no answer marks")
        expression = self._expression(text if extracted is None else extracted)
        numbers = sorted(int(number) for number in re.findall(r"\d{1,18}", expression))
        excerpt = expression[:200]
        if numbers != self._numbers:
            return Verdict(False, excerpt, f"uses {numbers[:20]} instead of {self._numbers}")
        try:
            value = value_of(expression, python=self._mode == "d1")
        except ExpressionError as error:
            return Verdict(False, excerpt, str(error))
        tolerance = Fraction(1, 100_000) if self._mode == "d1" else Fraction(0)
        is_correct = value == self._target or abs(value - self._target) < tolerance
        reason = f"makes {float(value):g}, the target is {self._target}"
        return Verdict(is_correct, excerpt, reason)

    def _expression(self, text: str) -> str:
        for mark, plain in LATEX if self._mode == "d1" else TYPOGRAPHY:
            text = text.replace(mark, plain)
        if self._mode == "robust":
            return text.partition("=")[0].strip()
        # From the start of a run alone: from each of its characters would be quadratic.
        equation = re.search(r"(?<![0-9+\-*/() ])([0-9+\-*/() ]++)=[0-9. ]+", text)
        return equation[1].strip() if equation else text
