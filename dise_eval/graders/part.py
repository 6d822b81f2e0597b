"""Grades a part of an answer."""

from __future__ import annotations

from dise_core.patterns import compiled
from dise_eval.graders.extract import MAX_TEXT
from dise_eval.graders.verdict import Grader, Verdict


class PartGrader(Grader):
    """Grades what an expression matches first as if it stood in a box, or else all."""

    def __init__(self, grader: Grader, pattern: str) -> None:
        self._grader, self._pattern = grader, compiled(pattern)
        self.version = f"{grader.version} of {pattern}"

    def grade(self, response: str) -> Verdict:
        match = self._pattern.search(response[-MAX_TEXT:].encode(errors="replace"))
        if match is None:
            return self._grader.grade(response)
        part = match[match.lastindex or 0].decode(errors="replace")
        return self._grader.grade(f"\\boxed{{{part}}}")
