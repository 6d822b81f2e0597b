"""The file that answers are written to, which knows what they were written with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError

from dise_app.linefile import LineFile
from dise_app.texts import MADE_WITH, made_with, refuse_other, settings_path, write_json
from dise_core.errors import InputError
from dise_core.records import Fields, Record

DEFINED = {"prompt", "model", "seed", "cache", "is_approximate", "outputs", "usage", "line"}
"""The keys of an answer that are not copied from the input's line."""


class ScoredBy(BaseModel):
    """What an answer says about its score."""

    scorer: str
    selector: str


class Scored(BaseModel):
    """One of the outputs of an answer."""

    score: ScoredBy


class Answered(BaseModel):
    """What every line that dise writes holds."""

    line: int = Field(ge=1, strict=True)
    model: str
    outputs: list[Scored] = Field(min_length=1)
    usage: dict[str, Any]
    seed: Any = None


class AnswerFile:
    """The answers, one a line; beside them a file with the settings, for a run that resumes."""

    def __init__(self, path: Path, settings: Fields) -> None:
        """Open the file and keep other runs out. settings: as JSON. Raises InputError if it cannot
        be written.
        """
        self._path, self._settings = path, dict(settings)
        self._has_settings = path.is_file() or not path.exists()
        self._file = LineFile(path)
        self.add = self._file.add

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._file.close()

    def answered(self, lines: Mapping[int, Fields]) -> set[int]:
        """Return which of the input's lines the file answers. lines: their records by number.
        Raises InputError, and leaves the file as it is, if dise did not write it, or wrote it with
        other settings or from other lines.
        """
        done: set[int] = set()
        settings = made_with(self._path)
        for number, record in self._file.records():
            answered = self._checked(number, record)
            if not done and settings is not None:
                refuse_other(self._path, settings, self._settings)
            self._refuse_other_line(record, lines.get(answered.line), answered.line)
            done.add(answered.line)
        if self._file.torn and not done and settings != self._settings:
            raise self._file.foreign(1, "is cut short")
        return done

    def begin(self) -> None:
        """Remove what follows the answers that were found, and write down the settings."""
        path = settings_path(self._path)
        if self._has_settings and path.exists() and made_with(self._path) is None:
            raise InputError(
                f"{path} is for the settings of --output, and dise did not write it: move it, or "
                "use another --output",
                "output",
            )
        self._file.begin()
        if self._has_settings:
            write_json(path, {MADE_WITH: self._settings})

    def _checked(self, number: int, record: Record) -> Answered:
        try:
            answered = Answered.model_validate(record)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, problem["loc"]))
            raise self._file.foreign(number, f"has no valid {where!r}") from error
        for output in answered.outputs:
            said = {"model": answered.model, **output.score.model_dump(), "seed": answered.seed}
            given = {name: self._settings.get(name) for name in said}
            known = {name: value for name, value in given.items() if value is not None}
            refuse_other(self._path, {name: said[name] for name in known}, known)
        return answered

    def _refuse_other_line(self, answer: Record, line: Fields | None, number: int) -> None:
        """Raise InputError unless the answer is one to this line of the input."""
        copied = {"prompt"} | (line or answer).keys() - DEFINED
        for key in sorted(copied):
            if line is None or (answer.get(key) or None) != (line.get(key) or None):
                raise InputError(
                    f"cannot resume: {self._path} answers another line {number} than --input "
                    f"holds, see its {key!r}; use another --output",
                    "output",
                )
