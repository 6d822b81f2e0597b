"""Files of answers that a run goes on with; beside each a file with the settings of its answers."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from dise_app.files.linefile import LineFile
from dise_app.files.texts import MADE_WITH, made_with, refuse_other, settings_path, write_json
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
    """What every line that dise writes holds: scored outputs, or answers to typed questions."""

    line: int = Field(ge=1, strict=True)
    model: str
    outputs: list[ScoredOutput] = Field(default_factory=list)
    answers: list[object] = Field(default_factory=list)
    usage: dict[str, object]
    seed: object = None


def answered(file: LineFile, settings: JsonFields, lines: Mapping[int, JsonFields]) -> set[int]:
    """Return which of the input's lines the file answers. settings: what the answers depend on, as
    JSON. lines: the input's records by number. Raises InputError, and leaves the file as it is, if
    dise did not write it, or wrote it with other settings or from other lines.
    """
    done: set[int] = set()
    written_with = made_with(file.path)
    for number, record in file.records():
        answer = _checked(file, number, record)
        for names in [dict(output.score) for output in answer.outputs] or [{}]:
            facts = {"model": answer.model, **names, "seed": answer.seed}
            known = {name: settings[name] for name in facts if settings.get(name) is not None}
            refuse_other(file.path, {name: facts[name] for name in known}, known)
        if not done and written_with is not None:
            refuse_other(file.path, written_with, settings)
        _refuse_other_line(file, record, lines.get(answer.line), settings)
        done.add(answer.line)
    if file.torn and not done and written_with != settings:
        raise file.foreign(1, "is cut short")
    return done


def refuse_foreign_settings(output: Path) -> None:
    """Raise InputError if what stands where the output's settings are noted is another's."""
    if (path := settings_path(output)).exists() and made_with(output) is None:
        foreign = f"{path} is for the settings of --output, and dise did not write it"
        raise InputError(f"{foreign}: move it, or use another --output", "output")


def begin(file: LineFile, settings: JsonFields) -> None:
    """Remove what is no answer, and note the settings."""
    file.begin()
    if file.is_regular:
        write_json(settings_path(file.path), {MADE_WITH: settings})


def _checked(file: LineFile, number: int, record: JsonFields) -> AnswerLine:
    try:
        answer = AnswerLine.model_validate(record)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise file.foreign(number, f"has no valid {where!r}") from error
    if not answer.outputs and not answer.answers:
        raise file.foreign(number, "has no valid 'outputs'")
    return answer


def _refuse_other_line(
    file: LineFile, answer: JsonFields, line: JsonFields | None, settings: JsonFields
) -> None:
    own = {"model", "seed", "cache", "is_approximate", "error", "outputs", "usage", "line"}
    own |= {"answers", "is_joint", "warnings", "params", "tokenizer", "chat"}
    given = {key: value for key, value in (line or {}).items() if value is not None}
    told = {"questions": settings.get("questions"), **given}
    if settings["command"] == "fill":
        told["prompt"] = given.get("prefix")
    for key in sorted((answer.keys() | told.keys()) - own):
        if line is None or (answer.get(key) or None) != (told.get(key) or None):
            other = f"{file.path} answers another line {answer['line']} than --input holds"
            advice = f"see its {key!r}; use another --output"
            raise InputError(f"cannot resume: {other}, {advice}", "output")
