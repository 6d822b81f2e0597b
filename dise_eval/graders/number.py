"""GSM8K and SVAMP: one number."""

from __future__ import annotations

import re
from fractions import Fraction

from dise_eval.graders.extract import MAX_TEXT, NUMBER, all_boxes, answer_marks, last_box
from dise_eval.graders.verdict import Grader, Mode, Verdict

_ROBUST = re.compile(r"-?\d[\d,]*(?:\.\d+)?|-?\.\d+")
_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(-?\d+)\}\{(-?\d+)\}")


class NumberGrader(Grader):
    """Grades the final number of an answer against the truth.

    d1: takes the first number of the first usable box, cut at its first closing brace,
    else the last number in the answer marks. robust: takes the last box, else the answer
    marks, else the whole text, and of that the last number; reads thousands separators
    and fractions.
    """

    def __init__(self, truth: object, mode: Mode = "robust") -> None:
        """truth: a number, or a text that is one or ends with #### and one. Raises
        ValueError for any other. d1 finds no answer to a negative truth right.
        """
        value = _float(str(truth).rpartition("####")[2].replace(",", ""))
        if value is None:
            raise ValueError(f"must be a number, not {truth!r:.80}")
        self._truth = None if mode == "d1" and value < 0 else value
        self._mode = mode
        self.version = f"number-{mode}-1"

    def grade(self, response: str) -> Verdict:
        text = response[-MAX_TEXT:]
        try:
            number = _d1_number(text) if self._mode == "d1" else _robust_number(text)
            value = None if number is None else float(number)
        except (ValueError, OverflowError):
            return Verdict(False, None, "a number of too many digits")
        if value is None:
            return Verdict(False, None, "no number found")
        is_correct = self._truth is not None and value == self._truth
        return Verdict(is_correct, f"{value:g}", f"the truth is {self._truth}")


def _d1_number(text: str) -> float | None:
    for box in all_boxes(text):
        content = box.strip()
        value = _number_in(content, 0) if content.strip(".") else None
        if value is not None:
            return value
    return _number_in(answer_marks(text) or "", -1)


def _number_in(text: str, place: int) -> float | None:
    """Return the number that the text is, or the one at that place within it."""
    value, numbers = _float(text), NUMBER.findall(text)
    return float(numbers[place]) if value is None and numbers else value


def _robust_number(text: str) -> Fraction | None:
    box, marked = last_box(text), answer_marks(text)
    for part in (box, marked, text):
        if part is None:
            continue
        if (fraction := _FRACTION.search(part)) and int(fraction[3]):
            return Fraction(int(fraction[1] + "1") * int(fraction[2]), int(fraction[3]))
        if numbers := _ROBUST.findall(part):
            return Fraction(numbers[-1].replace(",", "").rstrip("."))
    return None


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
