"""MATH500: a LaTeX answer, compared as normalized text; if robust, also as mathematics."""

from __future__ import annotations

from dise_eval.graders.extract import MAX_TEXT, answer_marks, braced, last_box
from dise_eval.graders.latex import normalize
from dise_eval.graders.symbolic import are_equal
from dise_eval.graders.verdict import Grader, Mode, Verdict


class MathGrader(Grader):
    """Grades a LaTeX answer against the truth.

    d1: takes the last box, else the whole text, and compares as the Hendrycks grader
    does. robust: takes the last box, else the answer marks; equal as text, or as
    mathematics according to math-verify, in a separate process with a time limit.
    """

    def __init__(self, truth: object, mode: Mode = "robust") -> None:
        self._truth = str(truth)
        self._mode = mode
        self.version = f"math-{mode}-{1 if mode == 'd1' else 2}"

    def grade(self, response: str) -> Verdict:
        text = response[-MAX_TEXT:]
        extracted = _d1_answer(text) if self._mode == "d1" else last_box(text) or answer_marks(text)
        if extracted is None:
            return Verdict(False, None, "no box and no answer marks")
        excerpt = extracted[:200]
        if _same(extracted, self._truth):
            return Verdict(True, excerpt, f"the same text as {self._truth!r}")
        if self._mode == "robust" and are_equal(extracted, self._truth):
            return Verdict(True, excerpt, f"equal to {self._truth!r}")
        return Verdict(False, excerpt, f"not {self._truth!r}")


def _d1_answer(text: str) -> str | None:
    """Return what d1 takes as the answer: the text after the last "\\boxed " up to the
    next $, else the last box, else the answer marks if the box is broken or empty, or the
    text if there is none.
    """
    if "\\boxed " in text:
        return text.rpartition("\\boxed ")[2].partition("$")[0]
    start = text.rfind("\\boxed")
    if start < 0:
        start = text.rfind("\\fbox")
    if start < 0:
        return text or answer_marks(text)
    brace = text.find("{", start)
    content = None if brace < 0 else braced(text, brace)
    return content or answer_marks(text)


def _same(answer: str, truth: str) -> bool:
    try:
        return normalize(answer) == normalize(truth)
    except ValueError:
        return answer == truth
