"""A user's own data set: JSON lines of prompts and answers, and the name of a grader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dise_core.errors import InputError, UnknownNameError
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.kinds import DATASET
from dise_eval.datasets.dataset import DataRow, Dataset
from dise_eval.graders import GRADERS

PROMPTS, ANSWERS = ("prompt", "question", "problem"), ("answer", "truth")
"""The fields that hold the prompt and the right answer: the first that a row has."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def is_file(name: str) -> bool:
    """Return whether --dataset names a file, not a data set."""
    return name.endswith((".json", ".jsonl")) or "/" in name


def beside(file: Path, name: str) -> Path:
    """Return the path of a data set that a file names, which may be a stranger's. Raises
    InputError for one outside the file's folder, by a link too.
    """
    folder, path = file.parent.resolve(), file.parent / name
    try:
        is_inside = path.resolve().is_relative_to(folder)
    except (OSError, RuntimeError, ValueError):  # links in a circle, a zero byte
        is_inside = False
    if Path(name).is_absolute() or not is_inside:
        raise InputError(
            f"{file} names the data {name!r:.80}, which do not lie in the folder of that file: put "
            "them there, or name them yourself, with --data FILE.",
            "data",
        )
    return path


def own_dataset(path: Path, grader: str | None = None) -> Dataset:
    """Return the data set in a file. grader: one of GRADERS; None: ranked answers."""
    return Dataset(
        name=path.stem,
        path=path,
        prompt=lambda row: _text(row, PROMPTS),
        answer=lambda row: _first(row, ANSWERS),
        choices=_choices,
        grader=grader,
        row_format='{"prompt": "...", "answer": ...}',
        version="as-written",
    )


def dataset_of(name: str, grader: str | None = None) -> Dataset:
    """Return the installed data set of that name, or the one in the file of that name;
    grader: instead of its own. Raises InputError for an unknown name or grader,
    PluginError for what a plugin registered that is no Dataset.
    """
    if grader is not None and grader not in GRADERS:
        raise UnknownNameError("grader", grader, ["robust", "d1", *GRADERS])
    if is_file(name):
        return own_dataset(Path(name), grader)
    entry = installed_catalog().entry(DATASET, name, "data set")
    dataset = entry.load()
    if not isinstance(dataset, Dataset):
        raise entry.failure(f"the data set {name!r}", TypeError(f"{dataset!r:.80} is no Dataset"))
    return dataset if grader is None else replace(dataset, grader=grader)


def _choices(row: DataRow) -> tuple[list[str], int]:
    """Return the texts of a row's choices, and the index of the one that its answer names
    by its letter or text; none for a row without choices.
    """
    texts = row.get("choices")
    if texts is None:
        return [], -1
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"field 'choices' must be a list of texts, not {texts!r:.80}")
    answer = _first(row, ANSWERS)
    names = [*texts, *LETTERS[: len(texts)]]
    if answer not in names:
        raise ValueError(f"the answer {answer!r:.80} is neither a choice nor the letter of one")
    return [f" {text}" for text in texts], names.index(answer) % len(texts)


def _text(row: DataRow, names: Sequence[str]) -> str:
    text = _first(row, names)
    if not isinstance(text, str) or not text:
        raise ValueError(f"its {names[0]} must be a text, not {text!r:.80}")
    return text


def _first(row: DataRow, names: Sequence[str]) -> object:
    for name in names:
        if name in row:
            return row[name]
    raise ValueError(f"it has no field {' or '.join(map(repr, names))}")
