"""The questions of a data set, from the hub, a local file or drawn."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from dise_app.files.lines import parse
from dise_core.errors import InputError, ModelError
from dise_core.files import opened_file
from dise_eval.datasets.dataset import DataRow, Dataset, Hub, Problem, UnsuitableRowError
from dise_eval.datasets.own import dataset_of
from dise_eval.graders import Mode
from dise_eval.graders.verdict import VerdictRecord

NUM_DRAWN = 256
"""The rows that are drawn without a limit."""

MOST_DRAWN = 16
"""The most rows that are drawn for each question, as some make no question."""

WRONG_ROW = (KeyError, TypeError, AttributeError, ValueError)

GATED = " It is gated: accept its terms on its page, then log in with `hf auth login`."


@dataclass(frozen=True, slots=True)
class ProblemSet:
    """The questions of one experiment, and their source, which every result names. chat:
    whether prompts go through the model's chat template; None: if the model has one.
    """

    dataset: Dataset
    source: str
    items: tuple[Problem, ...]
    chat: bool | None = None

    def grader(self, mode: Mode) -> str:
        """Return the version of what grades the answers."""
        return self.dataset.grading(self.items[0], mode).version

    def graded(self, problem: Problem, text: str, mode: Mode) -> VerdictRecord:
        """Return the verdict on an answer, as JSON."""
        verdict = self.dataset.grading(problem, mode).grade(text)
        return cast("VerdictRecord", asdict(verdict))


@dataclass(frozen=True, slots=True)
class Shots:
    """Worked examples: the first `count` of a file, or of the training split."""

    count: int = 0
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class DataRows:
    """The rows of a data set, each with its place for errors, and their source."""

    source: str
    rows: Sequence[tuple[str, DataRow]]


def load(
    name: str | Dataset,
    path: Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    revision: str | None = None,
    shots: Shots | None = None,
    chat: bool | None = None,
    grader: str | None = None,
) -> ProblemSet:
    """Return the questions of a data set, by its name too, or of a file: from the local
    file `path`, else from the data set's own file or the hub, else drawn with `seed`.

    limit: the number of questions to keep, the first ones. revision: branch, tag or
    commit on the hub. grader: that of GRADERS which grades answers instead of the data
    set's own. Raises InputError for an unknown name or a bad file, ModelError if the hub
    cannot be read.
    """
    dataset = name if isinstance(name, Dataset) else dataset_of(name, grader)
    rows = _rows(dataset, path, limit, seed, revision)
    items = tuple(_problems(dataset, rows))[:limit]
    if not items:
        raise InputError(f"data set {dataset.name!r} from {rows.source} holds no question", "data")
    source = rows.source
    if shots is not None and shots.count:
        examples, origin = _examples(dataset, shots, revision)
        items = tuple(replace(item, prompt=f"{examples}\n\n{item.prompt}") for item in items)
        source = f"{source}; {shots.count} shots of {origin}"
    return ProblemSet(dataset, source, items, chat)


def _rows(
    dataset: Dataset, path: Path | None, limit: int | None, seed: int, revision: str | None
) -> DataRows:
    if file := path or dataset.path:
        return _file_rows(file, dataset, "--dataset" if path is None else "--data")
    if dataset.hub is not None:
        return _hub_rows(dataset.hub, dataset.hub.split, revision)
    if dataset.draw is None:
        raise InputError(f"data set {dataset.name!r} is read from a file: give --data FILE", "data")
    count, source = limit or NUM_DRAWN, f"drawn, seed {seed}"
    rows = _placed(source, dataset.draw(count, seed))
    while limit and count < MOST_DRAWN * limit and len([*_problems(dataset, rows)]) < limit:
        count *= 2
        rows = _placed(source, dataset.draw(count, seed))
    return rows


def _placed(source: str, rows: Sequence[DataRow]) -> DataRows:
    placed = [(f"row {number} of {source}", row) for number, row in enumerate(rows, start=1)]
    return DataRows(source, placed)


def _problems(dataset: Dataset, rows: DataRows) -> Iterator[Problem]:
    for number, (place, row) in enumerate(rows.rows):
        try:
            yield dataset.problem(row, number)
        except UnsuitableRowError:
            continue
        except WRONG_ROW as error:
            raise InputError(
                f"{place} does not fit {dataset.name!r}: {_reason(error)}; a row is "
                f"{dataset.row_format}",
                "data",
            ) from error


def _examples(dataset: Dataset, shots: Shots, revision: str | None) -> tuple[str, str]:
    """Return the worked examples as one text, and their source."""
    shot = dataset.shot
    if shot is None:
        raise InputError(
            f"Data set {dataset.name!r} has no worked examples: leave out --shots.", "shots"
        )
    if shots.path is not None:
        rows = _file_rows(shots.path, dataset, "--shots-file")
    elif dataset.hub is not None:
        rows = _hub_rows(dataset.hub, "train", revision)
    else:
        raise InputError(f"data set {dataset.name!r} is not on the hub: give --shots-file", "shots")
    if len(rows.rows) < shots.count:
        raise InputError(
            f"{rows.source} holds {len(rows.rows)} examples, fewer than --shots {shots.count}",
            "shots",
        )
    try:
        texts = [shot(row) for _, row in rows.rows[: shots.count]]
    except WRONG_ROW as error:
        raise InputError(
            f"{rows.source} holds no worked example of {dataset.name!r}: {_reason(error)}; a row "
            f"is {dataset.row_format}",
            "shots",
        ) from error
    return "\n\n".join(texts), rows.source


def _reason(error: Exception) -> str:
    return f"it has no field {error}" if isinstance(error, KeyError) else str(error)


def _file_rows(path: Path, dataset: Dataset, option: str) -> DataRows:
    """Return the rows of a local file, whose source is its name with its digest. Raises
    InputError for a file that cannot be read or is not a JSON list or JSON lines; the
    error names the option.
    """
    try:
        with opened_file(path) as file:
            content = file.read()
        rows = _parsed(content.decode("utf-8-sig"), path)
    except OSError as error:
        raise InputError(
            f"cannot read {option} {path}: {error.strerror}"
            + (f"; the public ones are at {dataset.file_at}" if dataset.file_at else ""),
            "data",
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"cannot read {option} {path}: {_reason(error)}; a row is {dataset.row_format}", "data"
        ) from error
    return DataRows(f"{path.name} sha256 {hashlib.sha256(content).hexdigest()[:16]}", rows)


def _parsed(text: str, path: Path) -> list[tuple[str, DataRow]]:
    """Return the rows of a JSON list or lines, with their places. Raises ValueError."""
    unit, lines = "line", text.split("\n")
    if path.suffix == ".json":
        listed = json.loads(text)
        if not isinstance(listed, list):
            raise ValueError("it holds no list of questions")
        unit, lines = "row", [json.dumps(row) for row in listed]
    rows = list[tuple[str, DataRow]]()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                rows.append((f"{unit} {number} of {path.name}", parse(line.encode())))
            except InputError as error:
                raise ValueError(f"{unit} {number} {error}") from error
    return rows


def _hub_rows(hub: Hub, split: str, revision: str | None) -> DataRows:
    """Return the rows of a split, whose source names the commit. Raises ModelError."""
    import datasets
    from huggingface_hub import HfApi

    try:
        commit = HfApi().dataset_info(hub.id, revision=revision).sha
        rows = datasets.load_dataset(hub.id, hub.config, split=split, revision=commit)
        return _placed(" ".join(filter(None, (hub.id, hub.config, split, commit))), list(rows))
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise ModelError(
            f"cannot read {hub.id} from the hub: {reason}.{GATED if hub.is_gated else ''} "
            f"Or get its split {split!r} as JSON lines, and give it with --data FILE."
        ) from error
