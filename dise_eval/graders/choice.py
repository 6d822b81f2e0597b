"""Answers that are one of a few words: the letter of a choice, or a text."""

from __future__ import annotations

import re

from dise_core.errors import InputError
from dise_eval.graders.extract import MAX_TEXT, answer_marks, last_box
from dise_eval.graders.verdict import Grader, Mode, Verdict

LETTER = re.compile(r"\b([A-Z])\b")


class TextGrader(Grader):
    """Takes the last box, else the answer marks, else the whole text, and compares
    without regard to case, white space and a final full stop.
    """

    name = "text"

    def __init__(self, truth: object, mode: Mode = "robust") -> None:
        """Raises InputError for the mode d1, ValueError for a truth without content."""
        if mode == "d1":
            raise InputError(f"d1 has no grader {self.name!r}; take --grader robust", "grader")
        self.version = f"{self.name}-{mode}-1"
        self._truth = self.read(str(truth))
        if not self._truth:
            raise ValueError(f"must be {self.about}, not {truth!r:.80}")

    about = "a text"

    def grade(self, response: str) -> Verdict:
        text = response[-MAX_TEXT:]
        marked = last_box(text) or answer_marks(text) or text
        answer = self.read(marked)
        return Verdict(answer == self._truth, answer[:200] or None, f"the truth is {self._truth!r}")

    def read(self, text: str) -> str:
        """Return what is compared; "" if there is nothing."""
        return " ".join(text.casefold().split()).removesuffix(".")


class ChoiceGrader(TextGrader):
    """Compares the last capital letter in that part that stands alone."""

    name = "choice"
    about = "the letter of a choice"

    def read(self, text: str) -> str:
        return letters[-1] if (letters := LETTER.findall(text)) else ""
