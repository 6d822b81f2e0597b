"""Reads scored and labelled answers, from journals of `dise eval` or JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dise_app.files.jsonl import read_lines
from dise_app.files.linefile import MAX_OWN_LINE
from dise_app.files.run_folder import made_with
from dise_core.errors import InputError, shown
from dise_core.files import refuse_special
from dise_core.front.calibrated import fitted_settings
from dise_core.params.requests import SamplingParams
from dise_core.plugins.catalog import Catalog
from dise_core.records import Fields, Record
from dise_core.scoring.calibration import Holding, pattern_of
from dise_eval.calibration.fitting import Labels
from dise_eval.experiments.scoring import OF_SELECTOR, Contenders, names_in

JOURNAL = "journal.jsonl"

LARGEST_SCORE = 1e100
"""Larger scores, which no scorer gives, would overflow when squared."""

ScoredBy = Record
"""The model of the scores and how they were computed, in the fields of a Calibration."""

Origins = dict[str, ScoredBy]
"""Of several scores to choose among; several that are one have the first one's name."""

JsonLine = tuple[int, Record]
"""A line of a file with its number, from 1."""


class LabelledAnswer(NamedTuple):
    """An answer: its place in the file, scores by name (None: -inf), label, question."""

    place: str
    scores: Mapping[str, object]
    label: object
    question: str


def read(path: Path, options: Fields, catalog: Catalog) -> tuple[Labels, Origins]:
    """Return the labelled scores in a file, or in the journal of a folder, and how they
    were computed. options: those of `dise calibrate` on what the file does not say; with
    --selector auto, the simplest score is first. Raises InputError, with the line, for
    what is no score or no label, and for what neither says.
    """
    Contenders.of(options["score"] or (), catalog)
    path = _journal(path) if path.is_dir() else path
    lines = list(records(path))
    if not lines:
        raise InputError(f"{path} holds no line", "scored")
    first = lines[0][1]
    if {"experiment", "settings"} <= first.keys():
        names = _contenders(first["settings"], options, catalog)
        rows = _of_journal(lines[1:], names)
        facts = {**(first["settings"].get("params") or {}), **first}
        scored_by = _scored_by(names, facts, options, catalog)
        holding = _of_experiment(first, catalog)
    else:
        beside = made_with(path) or {}
        rows = _of_lines(lines, options)
        scored_by = _origin(first, beside, options, catalog)
        holding = _of_answers(lines, beside, options, catalog)
    if options["selector"] and len(scored_by) < 2:
        raise InputError(
            "--selector auto chooses among several scores, and there is only one, "
            f"{min(scored_by)}",
            "selector",
        )
    for origin in scored_by.values():
        origin["holds_for"] = holding
    return _labels(rows, options["skip_unscored"]), scored_by


def by_field(path: Path, options: Fields) -> Mapping[str, Labels]:
    """Return labelled fields by the pattern of their pointer and, if given, by type."""
    groups: dict[str, list[JsonLine]] = {}
    for number, record in records(path):
        pattern = pattern_of(str(_at(record, "path", f"line {number}")))
        for name in dict.fromkeys((pattern, str(record.get("type", pattern)))):
            groups.setdefault(name, []).append((number, record))
    skips = options["skip_unscored"]
    return {name: _labels(_of_lines(lines, options), skips) for name, lines in groups.items()}


def records(path: Path) -> Iterator[JsonLine]:
    """Yield the lines of a file. Raises InputError for the first that is none."""
    for line in read_lines(path, MAX_OWN_LINE):
        if line.problem is not None:
            raise InputError(f"line {line.number} {line.problem}", "scored")
        yield line.number, line.record


def _journal(folder: Path) -> Path:
    """Return the journal in a folder, which may be somebody else's."""
    try:
        refuse_special(path := folder / JOURNAL)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "scored") from error
    return path


def _contenders(settings: object, options: Fields, catalog: Catalog) -> Sequence[str]:
    """Return the chosen scores of a journal; if none are named, its only one, or all to
    choose among, that of the first scorer over its default selector before the others.
    """
    selection = options["score"]
    scorers = settings.get("scorers") if isinstance(settings, dict) else None
    if not isinstance(scorers, list) or not scorers:
        raise InputError("this journal holds no scores of answers; see dise eval uncertainty")
    names = [str(name) for name in scorers]
    if not selection and options["selector"]:
        members = Contenders.of(names, catalog).members
        scorer = members[0].scorer
        simplest = scorer, catalog.selector(scorer.default_selector)
        ordered = sorted(members, key=lambda it: (it.scorer, it.selector) != simplest)
        return [member.label for member in ordered]
    if (not selection and len(names) > 1) or not set(selection or ()).issubset(names):
        raise InputError(
            f"name one of the journal's scores with --score: {', '.join(names)}; or let "
            "--selector auto choose",
            "score",
        )
    return selection or names


def _of_journal(lines: Iterable[JsonLine], labels: Sequence[str]) -> Iterator[LabelledAnswer]:
    for number, record in lines:
        answers = record.get("answers", [record])
        try:
            for answer in answers:
                scores = {label: answer["scores"][label]["value"] for label in labels}
                is_right, question = answer["is_correct"], str(record["id"])
                yield LabelledAnswer(f"line {number}", scores, is_right, question)
        except (KeyError, TypeError) as error:
            raise InputError(
                f"line {number} was not written by dise eval: it lacks {error}"
            ) from None


def _of_lines(lines: Iterable[JsonLine], options: Fields) -> Iterator[LabelledAnswer]:
    field = options["question_field"]
    label_field = options["label_field"] or ("correct" if options["fields"] else "label")
    for number, record in lines:
        place = f"line {number}"
        default = "outputs.0.score.value" if "outputs" in record else "score"
        scores = {path: _at(record, path, place) for path in options["score_field"] or [default]}
        question = place if field is None else _at(record, field, place)
        label = _at(record, label_field, place)
        yield LabelledAnswer(place, scores, label, json.dumps(question))


def _at(value: object, path: str, place: str) -> object:
    for key in path.split("."):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise InputError(f"{place} has no {path!r}")
    return value


def _labels(rows: Iterable[LabelledAnswer], skip_unscored: bool) -> Labels:
    scores, rights, names = [], [], []
    for row in rows:
        if None in row.scores.values() and skip_unscored:
            continue
        scores.append([_score(row.place, name, value) for name, value in row.scores.items()])
        rights.append(_is_right(row))
        names.append(row.question)
    questions = np.unique(np.array(names, dtype=np.str_), return_inverse=True)[1]
    columns = np.array(scores)
    columns = columns.ravel() if columns.shape[-1] == 1 else columns
    return Labels(columns, np.array(rights, np.bool_), questions)


def _score(place: str, name: str, value: object) -> float:
    if value is None:
        raise InputError(
            f"{place}: its score is null, that of {name}; --skip-unscored leaves it out", "scored"
        )
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        raise InputError(
            f"{place}: its score must be a number, not {shown(value)}, that of {name}", "scored"
        )
    if abs(value) > LARGEST_SCORE:
        raise InputError(
            f"{place}: its score must be between {-LARGEST_SCORE:g} and {LARGEST_SCORE:g}, not "
            f"{shown(value)}, that of {name}: leave the line out, or score it again",
            "scored",
        )
    return float(value)


def _is_right(row: LabelledAnswer) -> bool:
    if not isinstance(row.label, bool | int | float) or row.label not in (0, 1):
        raise InputError(
            f"{row.place}: its label must be true or false, 1 or 0, not {shown(row.label)}",
            "scored",
        )
    return bool(row.label)


def _origin(first: Fields, settings: Fields, options: Fields, catalog: Catalog) -> Origins:
    """Return what the lines of a file, the settings beside it and the user say."""
    specifications, outputs = options["score"], first.get("outputs")
    if not specifications and isinstance(outputs, list) and outputs:
        score = _dict(_dict(outputs[0]).get("score"))
        pairs = _dict(settings.get("scorer_settings"))
        for name, value in _dict(settings.get("selector_settings")).items():
            pairs = pairs | {f"{OF_SELECTOR}{name}": value}
        text = ",".join(f"{name}={json.dumps(value)}" for name, value in pairs.items())
        specifications = [f"{score.get('scorer')}:{score.get('selector')}:{text}"]
    if not specifications:
        raise InputError(
            "the file does not say how its scores were computed: name it with --score "
            "SCORER:SELECTOR:KEY=VALUE,...",
            "score",
        )
    scored_by = _scored_by(specifications, {**settings, **first}, options, catalog)
    if len(set(options["score_field"] or [""])) != len(specifications):
        raise InputError("name a --score-field for each --score, in its order", "score_field")
    return scored_by


def _scored_by(
    specifications: Sequence[str], facts: Fields, options: Fields, catalog: Catalog
) -> Origins:
    """Return how the score, or each to choose among, was computed, by name."""
    contenders = Contenders.of(specifications, catalog).members
    if options["selector"] and len(contenders) > 1:
        single = [_scored_by([name], facts, options, catalog) for name in specifications]
        return {name: origin for origins in single for name, origin in origins.items()}
    if len(contenders) > 1:
        raise InputError(
            "Several --score are not fitted together, as such fits only equalled 'dise+written': "
            "name one, or choose one by --selector auto.",
            "score",
        )
    [contender] = contenders
    name, selector, _ = names_in(contender.label, catalog)
    model = options["model_name"] or facts.get("model")
    judge = options["judge_name"] or facts.get("judge")
    if not isinstance(model, str):
        raise InputError("the file does not name its model: name it with --model-name", "model")
    asks_judge = contender.scorer.asks == "judge"
    if asks_judge and not isinstance(judge, str):
        raise InputError(
            f"scorer {name!r} asks a judge that the file does not name: --judge-name", "judge"
        )
    tokenizer, is_its_model = facts.get("tokenizer"), model == facts.get("model")
    scored = {
        "model": model,
        "fingerprint": tokenizer if is_its_model and isinstance(tokenizer, str) else None,
        "judge": judge if asks_judge else None,
        "scorer": name,
        "selector": selector or contender.scorer.default_selector,
        "scorer_settings": contender.scorer.model_dump(mode="json"),
        "selector_settings": dict(contender.selector_settings),
    }
    return {specifications[0]: scored}


def _of_experiment(first: Fields, catalog: Catalog) -> Holding:
    """Return how an experiment's answers were made, by its journal's first line."""
    params, chat = _dict(first["settings"]).get("params"), first.get("chat")
    if first["experiment"] == "given":
        return Holding(texts="given", chat=chat)
    if not isinstance(params, dict):
        return Holding(texts="written", chat=chat)
    single = params | {"n": 1, "best_of": None}
    return Holding(texts="written", chat=chat, settings=fitted_settings([single], catalog))


def _of_answers(
    lines: Sequence[JsonLine], beside: Fields, options: Fields, catalog: Catalog
) -> Holding:
    """Return how lines' answers were made. beside: the settings beside the file."""
    records = [record for _, record in lines]
    texts = options["texts"] or _texts(records[0], options["fields"])
    if texts is None:
        raise InputError(
            "the file does not say whether the model wrote the answers or was given them: "
            "say --texts written, or --texts given",
            "texts",
        )
    if any("suffix" in record for record in records):
        raise InputError("these answers fill gaps, and a calibration is of whole answers", "scored")
    prompted = {record.get("prompt") != "" for record in records}
    if len(prompted) > 1:
        raise InputError("some answers have a prompt and some have none: fit them apart", "scored")
    finished = {_is_finished(record, beside) for record in records}
    if len(finished) > 1:
        raise InputError(
            "some texts were read with an end behind them and some without, as token ids are: "
            "fit them apart",
            "scored",
        )
    written_with = {json.dumps(params): params for params in _params(lines, beside)}
    return Holding(
        texts=texts,
        prompted=prompted.pop(),
        finished=finished.pop(),
        chat=beside.get("chat"),
        settings=fitted_settings(written_with.values(), catalog) if written_with else None,
    )


def _texts(record: Fields, is_of_fields: bool) -> Literal["written", "given"] | None:
    """Return how an answer came about; fields are of JSON that a constraint wrote."""
    outputs = record.get("outputs")
    if isinstance(outputs, list) and outputs:
        return "given" if _dict(outputs[0]).get("finish_reason") is None else "written"
    return "written" if is_of_fields else None


def _is_finished(record: Fields, beside: Fields) -> bool:
    """Return whether an end was read behind a text, as it is but for given token ids."""
    finished = beside.get("finished")
    return finished if isinstance(finished, bool) else "response_ids" not in record


def _params(lines: Sequence[JsonLine], beside: Fields) -> Iterator[Record]:
    """Yield the params, where known, that each line's first output was written with."""
    if beside.get("command") == "generate":
        yield _of_the_first(
            {name: beside[name] for name in SamplingParams.model_fields.keys() & beside}
        )
    for number, record in lines:
        if "params" not in record:
            continue
        if not isinstance(params := record["params"], dict):
            raise InputError(
                f"line {number}: its params must be an object, not {shown(params)}", "scored"
            )
        try:
            yield _of_the_first(SamplingParams(**params).model_dump(mode="json"))
        except InputError as error:
            raise InputError(f"line {number}: its params: {error}", "scored") from error


def _of_the_first(params: Record) -> Record:
    """Return the params of the best of several answers, where several were returned."""
    n = params.get("n", 1)
    return params if params.get("best_of") or n == 1 else params | {"n": 1, "best_of": n}


def _dict(value: object) -> Record:
    return value if isinstance(value, dict) else {}
