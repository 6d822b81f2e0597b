"""Data sets are records: where rows are, and how they become graded questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dise_core.errors import InputError
from dise_core.records import Fields
from dise_eval.graders import GRADERS, Grader, GraderMaker, Mode

DataRow = Fields
"""A row of a data set: its fields by name."""

NUMBER = "row_number"
"""The name under which a row's number, counted from 0, is among its fields."""


class UnsuitableRowError(Exception):
    """A row in the data set's format that makes no question."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One question: its prompt and its truth; for multiple choice the candidates and the
    index of the right one. row: as the data set holds it, with the given answer if it has
    one.

    A candidate is appended to the prompt as it is, so one that follows a word starts with
    a space.
    """

    id: str
    prompt: str
    truth: object
    candidates: tuple[str, ...] = ()
    right: int = -1
    row: DataRow = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Hub:
    """Where a data set is on the hub."""

    id: str
    config: str | None = None
    split: str = "test"
    is_gated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A data set by its name. Its rows are in the file `path` or on the hub, or are drawn
    by `draw(count, seed)`, the first ones the same for any count; a user may name another
    file.

    prompt, answer: of a row; a text names the field that holds it. choices: the
    candidates and the index of the right one. shot: a row as a worked example. These
    functions raise KeyError, TypeError, AttributeError or ValueError for a row of another
    format, UnsuitableRowError for one to skip. grader: one of GRADERS, or what makes a
    Grader of a truth and a mode, "d1" or "robust"; None if answers are ranked.

    row_format: a row, as errors show it. version: of the prompts' wording. id_prefix: of
    the questions' ids, by default the name; id_field: the field that holds an id instead.
    file_at: where its file can be had. likelihood_selector: that by which DiSE ranks
    candidates.
    """

    name: str
    prompt: str | Callable[[DataRow], str]
    answer: str | Callable[[DataRow], object]
    grader: str | GraderMaker | None = None
    choices: Callable[[DataRow], tuple[Sequence[str], int]] | None = None
    shot: Callable[[DataRow], str] | None = None
    path: Path | None = None
    hub: Hub | None = None
    draw: Callable[[int, int], list[DataRow]] | None = None
    row_format: str = '{"...": "..."}'
    version: str = "1"
    id_prefix: str = ""
    id_field: str | None = None
    file_at: str | None = None
    likelihood_selector: str = "response"

    def problem(self, row: DataRow, number: int) -> Problem:
        """Return a row as a question. Raises UnsuitableRowError for a row to skip; for
        one of another format KeyError, TypeError, AttributeError or ValueError.
        """
        fields = {**row, NUMBER: number}
        prompt, truth = (
            fields[part] if isinstance(part, str) else part(fields)
            for part in (self.prompt, self.answer)
        )
        if not isinstance(prompt, str):
            raise TypeError(f"the prompt must be a text, not {prompt!r:.80}")
        candidates, right = self.choices(fields) if self.choices is not None else ((), -1)
        if self.grader is not None:
            try:
                self._make_grader(truth, "robust")
            except ValueError as error:
                name = next((name for name in row if row[name] is truth), "answer")
                raise ValueError(f"field {name!r} {error}, for grader {self.grader!r}") from error
        identity = row.get(self.id_field or "", f"{self.id_prefix or self.name}-{number}")
        return Problem(str(identity), prompt, truth, tuple(candidates), right, row)

    def grading(self, problem: Problem, mode: Mode) -> Grader:
        """Return a question's grader. Raises InputError if answers are ranked."""
        if self.grader is None:
            raise InputError(
                f"data set {self.name!r} is for likelihood: its answers are ranked, not graded; "
                f"--grader names how they are, one of {', '.join(GRADERS)}",
                "dataset",
            )
        return self._make_grader(problem.truth, mode)

    def _make_grader(self, truth: object, mode: Mode) -> Grader:
        make = GRADERS[self.grader] if isinstance(self.grader, str) else self.grader
        assert make is not None
        return make(truth, mode)
