"""The interface of graders, and their verdict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, TypedDict

Mode = Literal["d1", "robust"]


class VerdictRecord(TypedDict):
    """A verdict as JSON."""

    is_correct: bool
    extracted: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an answer is right, what was extracted (None: nothing), and why: texts of
    at most 1000 characters.
    """

    is_correct: bool
    extracted: str | None
    reason: str


class Grader(ABC):
    """Grades the text of one answer against the truth of its question."""

    version: str
    """The grader's name, mode and the number of its rules, which goes up whenever a
    verdict may change. It is recorded in results and journals; a journal never mixes
    versions.
    """

    @abstractmethod
    def grade(self, response: str) -> Verdict:
        """Return the verdict. Any text is safe."""
