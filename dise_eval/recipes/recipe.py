"""A recipe: how a published figure was measured, as JSON that pydantic validates."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from dise_app.files.texts import json_file
from dise_core.errors import InputError, UnknownNameError
from dise_core.models.named import refuse_server
from dise_core.params.base import Name, Params, input_error
from dise_core.params.marks import remaining
from dise_core.params.requests import SamplingParams
from dise_core.patterns import compiled
from dise_core.records import Fields, Record
from dise_eval.datasets.dataset import DataRow, Dataset
from dise_eval.datasets.own import beside, dataset_of, is_file
from dise_eval.experiments.usual import FIXED
from dise_eval.graders import GRADERS, Grader
from dise_eval.graders.extract import MAX_TEXT
from dise_eval.graders.verdict import Verdict

Wording = Annotated[str, Field(min_length=1)]


def _pattern(text: str) -> str:
    compiled(text)
    return text


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


class Recipe(Params):
    """What is asked of which model, how it answers, how that is graded, what came out."""

    model: Name
    """A hub id, a folder or an embedded model, and no server."""
    dataset: Name
    """A data set's name, or a file in the recipe's own folder, ./NAME.jsonl."""
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
    grader: Name = "robust"
    """robust, d1 or another grader."""
    sampling: SamplingParams
    """The options of the answer: max_tokens, block_length, steps, unmasking, ..."""
    published: Published

    def params(self, instead: Fields) -> SamplingParams:
        """Return the options of the answer. instead: of the recipe's own."""
        options = self.sampling.model_dump(exclude_unset=True)
        options = remaining(SamplingParams, options, instead, options.get)
        return SamplingParams(**{**FIXED, **options, **instead})

    def dataset_for(self, grader: str) -> Dataset:
        """Return the data set as the recipe asks and grades it."""
        dataset = dataset_of(self.dataset, None if grader in ("robust", "d1") else grader)
        if prompt := self.prompt:
            digest = hashlib.sha256(prompt.encode()).hexdigest()[:12]
            dataset = replace(dataset, prompt=self._asked, version=f"recipe-{digest}")
        if (pattern := self.answer) is None or (named := dataset.grader) is None:
            return dataset
        make = GRADERS[named] if isinstance(named, str) else named
        return replace(dataset, grader=lambda *to: PartGrader(make(*to), pattern))

    def _asked(self, row: DataRow) -> str:
        """Return a row's prompt. Raises KeyError for a field that it lacks."""
        return re.sub(r"\{\{(\w+)\}\}", lambda at: str(row[at[1]]), self.prompt or "")


class PartGrader(Grader):
    """Grades what an expression matches first as if it stood in a box, or else all."""

    def __init__(self, grader: Grader, pattern: str) -> None:
        self._grader, self._pattern = grader, compiled(pattern)
        self.version = f"{grader.version} of {pattern}"

    def grade(self, response: str) -> Verdict:
        match = self._pattern.search(response[-MAX_TEXT:].encode(errors="replace"))
        if match is None:
            return self._grader.grade(response)
        part = match[match.lastindex or 0].decode(errors="replace")
        return self._grader.grade(f"\\boxed{{{part}}}")


def recipe_of(name: str, instead: Fields | None = None) -> tuple[str, Recipe]:
    """Return the recipe of that name, or that of a file, with its name. instead: what is
    given in place of its own fields. Raises InputError for an unknown name, for a file that
    holds none or several, and for one that names a server, or data outside its folder.
    """
    if not is_file(name):
        if name not in shipped():
            raise UnknownNameError("recipe", name, shipped())
        return name, shipped()[name]
    path, given = Path(name), instead or {}
    [*recipes] = recipes_in(path).items()
    if len(recipes) != 1:
        count = len(recipes)
        raise InputError(f"{name} holds {count} recipes: keep one in it.", "recipe")
    [(own, recipe)] = recipes
    if "model" not in given:
        refuse_server(recipe.model, name)
    if "data" not in given and is_file(recipe.dataset):
        recipe = recipe.model_copy(update={"dataset": str(beside(path, recipe.dataset))})
    return own, recipe


@cache
def shipped() -> Mapping[str, Recipe]:
    """Return the recipes that come along, by name."""
    files = sorted(Path(__file__).parent.glob("*.json"))
    return {name: recipe for file in files for name, recipe in recipes_in(file).items()}


def recipes_in(path: Path) -> dict[str, Recipe]:
    """Return the recipes of a file by name: one, by that of the file; or those under
    "recipes", which say what is their own and share the rest. Raises InputError for
    others.
    """
    shared, recipes = json_file(path), dict[str, Recipe]()
    own = shared.pop("recipes", {path.stem: {}}) if isinstance(shared, dict) else None
    if not isinstance(shared, dict) or not isinstance(own, dict):
        raise InputError(
            f'{path} must hold a recipe, an object like {{"model": ..., "dataset": ..., '
            f'"sampling": {{...}}, "published": {{...}}}}, not {shared!r:.40}.',
            "recipe",
        )
    for name, fields in own.items():
        try:
            recipes[name] = Recipe.model_validate(_joined(shared, fields))
        except ValidationError as error:
            raise input_error(error, f"{path}, {name}", Recipe.model_fields) from error
    return recipes


def _joined(shared: Record, own: object) -> object:
    """Return what is shared with what is a recipe's own instead, in objects too."""
    if not isinstance(own, dict):
        return own
    objects = {key for key in own if isinstance(shared.get(key), dict)}
    return shared | own | {key: _joined(shared[key], own[key]) for key in objects}
