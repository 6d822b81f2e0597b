"""The file of an experiment: a data set, and ways to answer it. With a published figure, of
one way, it is a recipe.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, AliasChoices, Field, ValidationError

from dise_app.files.texts import json_file
from dise_core import InputError, SamplingParams
from dise_core.errors import UnknownNameError, did_you_mean
from dise_core.models.named import refuse_server
from dise_core.params.base import Name, Params, input_error
from dise_core.params.marks import remaining
from dise_core.patterns import compiled
from dise_core.records import Fields, Record
from dise_eval.datasets.dataset import DataRow, Dataset
from dise_eval.datasets.own import beside, dataset_of, is_file
from dise_eval.experiments.usual import FIXED
from dise_eval.graders import GRADERS
from dise_eval.graders.part import PartGrader

SHIPPED = Path(__file__).parents[1] / "recipes"

Wording = Annotated[str, Field(min_length=1)]


def _pattern(text: str) -> str:
    compiled(text)
    return text


class WayParams(SamplingParams):
    """The options of a request, of the answers of one way."""

    model: Name | None = None
    """The model that writes, instead of the file's."""
    beside: Name | None = None
    """The way that this one is compared with, instead of the file's baseline."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to write an answer. model: None for the experiment's. beside: the name of the
    way that it is compared with; None for the baseline.
    """

    name: str
    params: SamplingParams
    model: str | None = None
    beside: str | None = None


class Published(Params):
    """A published figure, of questions that were answered once each."""

    percent: Annotated[float, Field(ge=0, le=100)]
    """The share that was answered right."""
    questions: Annotated[int, Field(ge=1)]
    """How many there were."""
    source: Wording
    """Where figure and settings stand: a table, a repository's file, a command."""
    unsaid: str = ""
    """What the source does not say, or cannot be followed in, and what is done instead."""


class WaysFile(Params):
    """A data set, and ways to answer its questions."""

    dataset: Name | None = None
    """A data set's name, or a file of your own in this file's folder."""
    data: Path | None = None
    """A file of the data set in this file's folder."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Take the first so many questions."""
    rows: str | None = None
    """The questions' source as reports name it, where it is to be this one."""
    prompt: Wording | None = None
    """What is asked, worked examples included; {{FIELD}} is that of a question's row.
    Without it, as the data set asks."""
    shots: Annotated[int, Field(ge=0)] = 0
    """Worked examples of the training split, as the data set shows them."""
    chat: bool | None = None
    """Whether the model's chat template is used; without it if the model has one."""
    answer: Annotated[str, AfterValidator(_pattern)] | None = None
    """What of an answer is graded, as in a box, if it matches: its last group, if any. An
    expression of RE2."""
    model: Name = "countdown"
    """The model that writes, which is no server."""
    judge: Name | None = None
    """An auto-regressive model for the scorers that ask one."""
    grader: Name = "robust"
    """How answers are graded."""
    baseline: Name | None = None
    """The way that the others are compared with; the first one, if not set."""
    shared: Record = Field(
        default_factory=dict, validation_alias=AliasChoices("shared", "sampling")
    )
    """The options of every way that does not set them."""
    ways: Annotated[dict[Name, Record], Field(max_length=256)] = Field(default_factory=dict)
    """The options of each way, by its name."""
    published: Published | None = None
    """The figure of the one way, which has the name of the file."""

    def checked(self, path: Path, name: str, options: Collection[str]) -> Self:
        """Return what a file holds under a name, with its data beside it: see files_in."""
        if self.dataset is None and "dataset" not in options:
            raise InputError(
                f'{path} names no data set: give it a "dataset", for example "countdown-short", '
                "or name one with --dataset.",
                "dataset",
            )
        is_published = self.published is not None
        if bool(self.ways) == is_published:
            raise InputError(
                f'{path} has a "published" figure, which is of one way: put its options under '
                '"shared", and leave out "ways".'
                if is_published
                else f'{path} names no ways: give it "ways", an object with the options of a '
                "request under each name.",
                "ways",
            )
        if is_published and "model" not in self.model_fields_set.union(options):
            raise InputError(f'{path} has a "published" figure, but names no "model".', "model")
        for role in {"model", "judge"}.difference(options):
            refuse_server(getattr(self, role), str(path), role)
        changes: Record = {"ways": {name: {}}} if is_published else {}
        if self.data is not None and "data" not in options:
            changes["data"] = beside(path, str(self.data))
        if self.dataset and is_file(self.dataset) and not {"data", "dataset"}.intersection(options):
            changes["dataset"] = str(beside(path, self.dataset))
        return self.model_copy(update=changes)

    def way(self, name: str, instead: Fields | None = None) -> Way:
        """Return a way. instead: of its options. Raises InputError, which names it, for
        wrong options.
        """
        options = {**self.ways[name], **(instead or {})}
        shared = remaining(WayParams, self.shared, options, self.shared.get)
        try:
            params = WayParams(**{**FIXED, **shared, **options})
        except InputError as error:
            raise InputError(
                f"The way {name!r} cannot be used: {error}", error.parameter
            ) from error
        refuse_server(params.model, f"The way {name!r}")
        fields = params.model_dump(include={*SamplingParams.model_fields}, exclude_unset=True)
        beside = params.beside or self.baseline or next(iter(self.ways))
        return Way(name, SamplingParams(**fields), params.model, None if beside == name else beside)

    def asked(self) -> Dataset:
        """Return the data set as the file asks and grades it."""
        grader = None if self.grader in ("robust", "d1") else self.grader
        dataset = dataset_of(self.dataset or "", grader)
        if prompt := self.prompt:
            digest = hashlib.sha256(prompt.encode()).hexdigest()[:12]
            dataset = replace(dataset, prompt=self._prompt_of, version=f"recipe-{digest}")
        if (pattern := self.answer) is None or (named := dataset.grader) is None:
            return dataset
        make = GRADERS[named] if isinstance(named, str) else named
        return replace(dataset, grader=lambda *to: PartGrader(make(*to), pattern))

    def _prompt_of(self, row: DataRow) -> str:
        """Return a row's prompt. Raises KeyError for a field that it lacks."""
        return re.sub(r"\{\{(\w+)\}\}", lambda at: str(row[at[1]]), self.prompt or "")


def ways_of(file: WaysFile) -> list[Way]:
    """Return a file's ways. Raises InputError for wrong options, and for a baseline or a
    `beside` that is none of them.
    """
    ways = [file.way(name) for name in file.ways]
    others = {"The baseline": file.baseline} | {
        f"The way {way.name!r} cannot be compared with": way.beside for way in ways
    }
    for what, other in others.items():
        if other is not None and other not in file.ways:
            hint = did_you_mean(other, file.ways)
            raise InputError(f"{what} {other!r}, which is no way of the file{hint}", "beside")
    return ways


def file_of(name: str, options: Collection[str] = ()) -> tuple[str, WaysFile]:
    """Return what a file holds, with its name, or the recipe of that name. options: see
    files_in. Raises InputError for an unknown recipe, and for a file of several.
    """
    if not is_file(name) and name not in shipped():
        raise UnknownNameError("recipe", name, shipped())
    files = files_in(Path(name), options) if is_file(name) else {name: shipped()[name]}
    if len(files) != 1:
        raise InputError(f"{name} holds {len(files)} recipes: keep one in it.", "recipe")
    return next(iter(files.items()))


@cache
def shipped() -> Mapping[str, WaysFile]:
    """Return the recipes that come along, by name."""
    files = sorted(SHIPPED.glob("*.json"))
    return {name: recipe for file in files for name, recipe in files_in(file).items()}


def files_in(path: Path, options: Collection[str] = ()) -> dict[str, WaysFile]:
    """Return what a file holds by name: one, by that of the file; or recipes under
    "recipes", which say what is their own and share the rest. options: fields that whoever
    runs it names instead. Raises InputError for anything else, and for what names a
    server, or data outside the file's folder.
    """
    shared, files = json_file(path), dict[str, WaysFile]()
    own = shared.pop("recipes", {path.stem: {}}) if isinstance(shared, dict) else None
    if not isinstance(shared, dict) or not isinstance(own, dict):
        raise InputError(
            f'{path} must hold an object like {{"dataset": "countdown-short", "ways": '
            f'{{"a name": {{"tokens_per_step": 1}}}}}}, not {shared!r:.40}.',
            "ways",
        )
    for name, fields in own.items():
        try:
            file = WaysFile.model_validate(_joined(shared, fields))
        except ValidationError as error:
            raise input_error(error, f"{path}, {name}", WaysFile.model_fields) from error
        files[name] = file.checked(path, name, options)
    return files


def _joined(shared: Record, own: object) -> object:
    """Return what is shared with what is a recipe's own instead, in objects too."""
    if not isinstance(own, dict):
        return own
    objects = {key for key in own if isinstance(shared.get(key), dict)}
    return shared | own | {key: _joined(shared[key], own[key]) for key in objects}
