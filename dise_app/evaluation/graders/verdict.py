"""What a grader says, and why."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

Mode = Literal["d1", "robust"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an answer is right, what was read from it (None if nothing), and why."""

    is_correct: bool
    extracted: str | None
    reason: str


class Grader(ABC):
    """Grades the text of one answer against the truth of its question."""

    version: str
    """Names the grader, its mode and its rules, whose number goes up when a verdict may change; in
    results, and in journals, which are of one version.
    """

    @abstractmethod
    def grade(self, response: str) -> Verdict:
        """Return the verdict. Any text is harmless."""
