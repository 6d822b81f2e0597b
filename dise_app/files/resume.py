"""Files of answers that a run continues, each beside a file of its settings."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from dise_app.files.linefile import LineFile
from dise_app.files.run_folder import MADE_WITH, RunFolder, made_with, settings_path
from dise_app.files.texts import write_json
from dise_core import InputError
from dise_core.records import JsonFields


class ScoreNames(BaseModel):
    """What an answer says about its score."""

    scorer: str
    selector: str


class ScoredOutput(BaseModel):
    """One of the outputs of an answer."""

    score: ScoreNames


class AnswerLine(BaseModel):
    """A line that dise writes: scored outputs, or answers to typed questions."""

    line: int = Field(ge=1, strict=True)
    model: str
    outputs: list[ScoredOutput] = Field(default_factory=list)
    answers: list[object] = Field(default_factory=list)
    usage: dict[str, object]
    seed: object = None


def answered_lines(file: LineFile, run: RunFolder, lines: Mapping[int, JsonFields]) -> set[int]:
    """Return the numbers of the input's lines that the run's file answers. lines: the
    input's records by number. Raises InputError, and leaves the file as it is, if dise did
    not write it, or wrote it with other settings or from other lines.
    """
    numbers: set[int] = set()
    settings, note = run.settings, made_with(file.path)
    for number, record in file.records():
        answer = _checked(file, number, record)
        for names in [dict(output.score) for output in answer.outputs] or [{}]:
            facts = {"model": answer.model, **names, "seed": answer.seed}
            expected = {name: settings[name] for name in facts if settings.get(name) is not None}
            RunFolder(file.path, expected).refuse_other({name: facts[name] for name in expected})
        if not numbers and note is not None:
            run.refuse_other(note)
        _refuse_other_line(file, record, lines.get(answer.line), settings)
        numbers.add(answer.line)
    if file.torn and not numbers and not (note is not None and run.is_of(note)):
        raise file.foreign(1, "is cut short")
    return numbers


def refuse_foreign_settings(output: Path) -> None:
    """Raise InputError if the file for the output's settings was not written by dise."""
    if (path := settings_path(output)).exists() and made_with(output) is None:
        raise InputError(
            f"{path} is for the settings of --output, and dise did not write it: "
            "move it, or use another --output",
            "output",
        )


def begin(file: LineFile, run: RunFolder) -> None:
    """Remove all but answers, and note the settings."""
    file.begin()
    if file.is_regular:
        write_json(settings_path(file.path), {MADE_WITH: run.settings})


def _checked(file: LineFile, number: int, record: JsonFields) -> AnswerLine:
    try:
        answer = AnswerLine.model_validate(record)
    except ValidationError as error:
        key = ".".join(map(str, error.errors()[0]["loc"]))
        raise file.foreign(number, f"has no valid {key!r}") from error
    if not answer.outputs and not answer.answers:
        raise file.foreign(number, "has no valid 'outputs'")
    return answer


def _refuse_other_line(
    file: LineFile, answer: JsonFields, line: JsonFields | None, settings: JsonFields
) -> None:
    answer_keys = {"model", "seed", "cache", "is_approximate", "error", "outputs", "usage", "line"}
    answer_keys |= {"answers", "is_joint", "warnings", "params", "tokenizer", "chat"}
    fields = {key: value for key, value in (line or {}).items() if value is not None}
    request = {"questions": settings.get("questions"), **fields}
    if settings["command"] == "fill":
        request["prompt"] = fields.get("prefix")
    for key in sorted((answer.keys() | request.keys()) - answer_keys):
        if line is None or (answer.get(key) or None) != (request.get(key) or None):
            raise InputError(
                f"cannot resume: {file.path} answers another line {answer['line']} than --input "
                f"holds, see its {key!r}; use another --output",
                "output",
            )
