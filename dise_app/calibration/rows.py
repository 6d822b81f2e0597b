"""Reads scored and labelled answers: journals of `dise eval uncertainty`, `best-of-n` and `given`,
and any JSON lines with a score and a label.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dise_app.calibration.fitting import Labels
from dise_app.evaluation.scoring import Contenders
from dise_app.linefile import MAX_OWN_LINE
from dise_app.lines import lines_of, parse, without_bom
from dise_app.texts import made_with
from dise_core.catalog import Catalog
from dise_core.errors import InputError, shown
from dise_core.records import Fields, Record

JOURNAL = "journal.jsonl"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user says about a file of scored answers; None: what the file says.

    score: SCORER:SELECTOR:KEY=VALUE,..., which of a journal's scores, or how the scores of other
    lines were computed. Fields are paths such as outputs.0.score.value.
    """

    score: str | None = None
    model: str | None = None
    judge: str | None = None
    score_field: str | None = None
    label_field: str = "label"
    question_field: str | None = None
    skip_unscored: bool = False


@dataclass(frozen=True, slots=True)
class ScoredBy:
    """The model of the scores and how they were computed, in the fields of a Calibration."""

    model: str
    fingerprint: str | None
    judge: str | None
    scorer: str
    selector: str
    scorer_settings: Record
    reviser: str | None
    reviser_settings: Record


@dataclass(frozen=True, slots=True)
class Row:
    """One answer: where it stands in the file, its score (None for -inf), label and question."""

    place: str
    score: object
    label: object
    question: str


def read(path: Path, asked: Asked, catalog: Catalog) -> tuple[Labels, ScoredBy]:
    """Return the labelled scores in a file, or in the journal of a folder. Raises InputError, with
    the line, for what is no score or no label, and for what the file does not say.
    """
    path = path / JOURNAL if path.is_dir() else path
    records = list(_records(path))
    if not records:
        raise InputError(f"{path} holds no line", "scored")
    if {"experiment", "settings"} <= records[0][1].keys():
        [_, key], *answers = records
        label = _contender(key, asked)
        rows, said = _of_journal(answers, label), {**(key["settings"].get("params") or {}), **key}
        scored_by = _scored_by(label, said, asked, catalog)
    else:
        rows = _of_lines(records, asked)
        scored_by = _told(records[0][1], made_with(path) or {}, asked, catalog)
    return _labels(rows, asked.skip_unscored), scored_by


def _records(path: Path) -> Iterator[tuple[int, Record]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(lines_of(file, MAX_OWN_LINE), start=1):
                if line.strip():
                    yield number, _parsed(number, without_bom(line) if number == 1 else line)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "scored") from error


def _parsed(number: int, line: bytes) -> Record:
    try:
        return parse(line, MAX_OWN_LINE)
    except InputError as error:
        raise InputError(f"line {number} {error}", "scored") from error


def _contender(key: Fields, asked: Asked) -> str:
    """Return the chosen scores of a journal; those of its only contender if none are named."""
    settings = key["settings"]
    known = settings.get("scorers") if isinstance(settings, dict) else None
    if not isinstance(known, list) or not known:
        raise InputError("this journal holds no scores of answers; see dise eval uncertainty")
    chosen = str(known[0]) if asked.score is None and len(known) == 1 else asked.score
    if chosen not in known:
        names = ", ".join(map(str, known))
        raise InputError(f"name one of the journal's scores with --score: {names}", "score")
    return str(chosen)


def _of_journal(records: Iterable[tuple[int, Record]], label: str) -> Iterator[Row]:
    for number, record in records:
        answers = record.get("answers", [record])
        try:
            for answer in answers:
                score, right = answer["scores"][label]["value"], answer["is_correct"]
                yield Row(f"line {number}", score, right, str(record["id"]))
        except (KeyError, TypeError) as error:
            raise InputError(f"line {number} is no record of dise eval: it lacks {error}") from None


def _of_lines(records: Iterable[tuple[int, Record]], asked: Asked) -> Iterator[Row]:
    for number, record in records:
        place = f"line {number}"
        path = asked.score_field or ("outputs.0.score.value" if "outputs" in record else "score")
        question = (
            place if asked.question_field is None else _at(record, asked.question_field, place)
        )
        score, label = _at(record, path, place), _at(record, asked.label_field, place)
        yield Row(place, score, label, json.dumps(question))


def _at(record: Record, path: str, place: str) -> object:
    """Return the value at a path of keys and indices."""
    value: object = record
    for key in path.split("."):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise InputError(f"{place} has no {path!r}")
    return value


def _labels(rows: Iterable[Row], skip_unscored: bool) -> Labels:
    scores, rights, names = [], [], []
    for row in rows:
        if row.score is None and skip_unscored:
            continue
        scores.append(_score(row))
        rights.append(_is_right(row))
        names.append(row.question)
    questions = np.unique(np.array(names, dtype=np.str_), return_inverse=True)[1]
    return Labels(np.array(scores), np.array(rights, np.bool_), questions)


def _score(row: Row) -> float:
    value = row.score
    if value is None:
        raise InputError(
            f"{row.place}: its score is null, which stands for -inf, as nothing was scored; "
            "--skip-unscored leaves such answers out",
            "scored",
        )
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{row.place}: its score must be a number, not {shown(value)}", "scored")
    return float(value)


def _is_right(row: Row) -> bool:
    if not isinstance(row.label, bool | int | float) or row.label not in (0, 1):
        raise InputError(
            f"{row.place}: its label must be true or false, 1 or 0, not {shown(row.label)}",
            "scored",
        )
    return bool(row.label)


def _told(first: Record, settings: Fields, asked: Asked, catalog: Catalog) -> ScoredBy:
    """Return what the lines of a file, the settings beside it and the user say."""
    specification, said = asked.score, first.get("outputs")
    if specification is None and isinstance(said, list) and said:
        score = said[0].get("score", {}) if isinstance(said[0], dict) else {}
        pairs = settings.get("scorer_settings") or {}
        text = ",".join(f"{name}={json.dumps(value)}" for name, value in pairs.items())
        specification = f"{score.get('scorer')}:{score.get('selector')}:{text}"
    if specification is None:
        raise InputError(
            "the file does not say how its scores were computed: name it with --score "
            "SCORER:SELECTOR:KEY=VALUE,...",
            "score",
        )
    return _scored_by(specification, {**settings, **first}, asked, catalog)


def _scored_by(specification: str, said: Fields, asked: Asked, catalog: Catalog) -> ScoredBy:
    [contender] = Contenders.of([specification], catalog).each
    name, _, rest = specification.partition(":")
    model, judge = asked.model or said.get("model"), asked.judge or said.get("judge")
    if not isinstance(model, str):
        raise InputError("the file does not name its model: name it with --model-name", "model")
    if contender.scorer.asks == "judge" and not isinstance(judge, str):
        raise InputError(
            f"scorer {name!r} asks a judge that the file does not name: name it with --judge-name",
            "judge",
        )
    return ScoredBy(
        model=model,
        fingerprint=said.get("tokenizer") if asked.model in (None, said.get("model")) else None,
        judge=judge if contender.scorer.asks == "judge" else None,
        scorer=name,
        selector=rest.partition(":")[0] or contender.scorer.default_selector,
        scorer_settings=contender.scorer.model_dump(mode="json"),
        **_revised_by(said, catalog),
    )


def _revised_by(said: Fields, catalog: Catalog) -> Record:
    name, settings = said.get("reviser"), said.get("reviser_settings") or {}
    if not isinstance(name, str):
        return {"reviser": None, "reviser_settings": {}}
    reviser = catalog.reviser(name, settings)
    return {"reviser": name, "reviser_settings": reviser.model_dump(mode="json")}
