"""The file of an experiment: a data set, and ways to answer it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError

from dise_app.files.texts import json_file
from dise_core import InputError, SamplingParams
from dise_core.errors import did_you_mean
from dise_core.models.named import refuse_server
from dise_core.params.base import Name, Params, input_error
from dise_core.params.marks import remaining
from dise_core.records import Fields, Record
from dise_eval.datasets.own import beside, is_file
from dise_eval.experiments.usual import FIXED


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


class WaysFile(Params):
    """A data set, and ways to answer its questions."""

    dataset: Name | None = None
    """A data set's name, or a file of your own in this file's folder."""
    data: Path | None = None
    """A file of the data set in this file's folder."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Take the first so many questions."""
    model: Name = "countdown"
    """The model that writes, which is no server."""
    judge: Name | None = None
    """An auto-regressive model for the scorers that ask one."""
    grader: Name = "robust"
    """How answers are graded."""
    baseline: Name | None = None
    """The way that the others are compared with; the first one, if not set."""
    shared: Record = Field(default_factory=dict)
    """The options of every way that does not set them."""
    ways: Annotated[dict[Name, Record], Field(max_length=256)] = Field(default_factory=dict)
    """The options of each way, by its name."""

    @classmethod
    def load(cls, path: Path, instead: Fields) -> Self:
        """Return what the file holds. instead: of its fields. Raises InputError for
        another file, and for one without a data set or without ways, or that names a server,
        or data outside its folder.
        """
        content = json_file(path)
        if not isinstance(content, dict):
            raise InputError(
                f'{path} must hold an object like {{"dataset": "countdown-short", "ways": '
                f'{{"a name": {{"tokens_per_step": 1}}}}}}, not {content!r:.40}.',
                "ways",
            )
        try:
            file = cls.model_validate({**content, **instead})
        except ValidationError as error:
            raise input_error(error, str(path), cls.model_fields) from error
        if file.dataset is None:
            raise InputError(
                f'{path} names no data set: give it a "dataset", for example "countdown-short", '
                "or name one with --dataset.",
                "dataset",
            )
        if not file.ways:
            raise InputError(
                f'{path} names no ways: give it "ways", an object with the options of a request '
                "under each name.",
                "ways",
            )
        for role in {"model", "judge"} - instead.keys():
            refuse_server(getattr(file, role), str(path), role)
        return file.model_copy(update=file._beside(path, instead))

    def _beside(self, path: Path, instead: Fields) -> Record:
        """Return where the data that the file itself names stand."""
        if "data" in instead:
            return {}
        data = {} if self.data is None else {"data": beside(path, str(self.data))}
        if "dataset" in instead or self.dataset is None or not is_file(self.dataset):
            return data
        return {"dataset": str(beside(path, self.dataset)), **data}

    def way(self, name: str) -> Way:
        """Return a way. Raises InputError, which names it, for wrong options."""
        options = self.ways[name]
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


def ways_of(file: WaysFile) -> list[Way]:
    """Return a file's ways. Raises InputError for wrong options, and for a baseline or a
    `beside` that is none of them.
    """
    if file.baseline is not None and file.baseline not in file.ways:
        raise InputError(
            f"The baseline {file.baseline!r} is no way of the file"
            f"{did_you_mean(file.baseline, file.ways)}",
            "baseline",
        )
    ways = [file.way(name) for name in file.ways]
    for way in ways:
        if way.beside is not None and way.beside not in file.ways:
            raise InputError(
                f"The way {way.name!r} cannot be compared with {way.beside!r}, which is no way of "
                f"the file{did_you_mean(way.beside, file.ways)}",
                "beside",
            )
    return ways
