"""dise eval compare: compare ways to answer questions, named in a file. dise eval --recipe:
repeat a published evaluation, which is one way, or list them.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dise_app.cli import options
from dise_app.cli.options import option
from dise_app.terminal.lines import folded
from dise_core.errors import InputError
from dise_core.params.engine import EngineConfig
from dise_core.params.marks import Mark, marked
from dise_core.params.requests import SamplingParams
from dise_core.records import Fields, Record
from dise_eval.cli import doors
from dise_eval.cli.evaluate import DATA, RUN, finish, load, mode_of

if TYPE_CHECKING:
    from dise_core import LLM
    from dise_eval.datasets.questions import ProblemSet
    from dise_eval.experiments.waysfile import WaysFile
    from dise_eval.graders import Mode

LIST = "list"
CHANGING = ("model", "grader", "chat", "shots_file")

INSTEAD = options.Own(
    "Instead of what the file names",
    dataset=option(str | None, "A data set, or a file of your own, ./NAME.jsonl."),
    model=option(str | None, "The model that writes where the way names none."),
    judge=options.MODELS.options["judge"],
    grader=option(str | None, "robust, d1, or the grader of answers to your own questions."),
    shots=option(int | None, "Worked examples before each question.", min=0),
    **{
        name: DATA.options[name]
        for name in ("data", "data_revision", "limit", "shots_file", "chat")
    },
)
ASKED = ("model", "grader", "data", "data_revision", "limit", "shots_file", "chat")
OF_RECIPE = options.Own(
    "Instead of what the recipe says", **{name: INSTEAD.options[name] for name in ASKED}
)
NAMED = options.Own(
    recipe=option(
        str, "A name, or a file, my.json; list: the names, with their figures.", options.REQUIRED
    ),
    output=option(Path | None, "Folder of the run. [default: runs/NAME]"),
    as_json=(options.Json, False),
)


@options.verb(
    *("output", "dataset", "limit", "model", "as_json"),
    run=RUN, instead=INSTEAD, engine=options.ENGINE,
)  # fmt: skip
def compare(
    ways: Annotated[
        Path, typer.Argument(help="A JSON file with a data set and named ways.", metavar="WAYS")
    ],
    *,
    parts: options.Parts,
) -> None:
    """Which way to write an answer solves more, and at what cost?

    Each way is the options of a request, under its name: {"dataset": ..., "shared":
    {...}, "ways": {"one at a time": {"tokens_per_step": 1}, ...}}. Differences are
    paired, from the first way.
    """
    from dise_app.cli import answer
    from dise_eval.experiments.ways import Compared
    from dise_eval.experiments.waysfile import file_of, ways_of

    changes = _set(parts.instead)
    _, file = file_of(os.path.join(".", ways), changes)
    compared = ways_of(file)
    llm, problems, mode = _opened(file, changes, parts, parts.run, compared[0].params.seed or 0)
    judge = changes.get("judge", file.judge)
    models = {
        way.model: answer.opened({"model": way.model, "judge": judge}, parts.engine)
        for way in compared
        if way.model is not None
    }
    finish(Compared(llm, problems, compared, mode, models), parts.run, "ways:compare")


@options.verb(
    *("recipe", "output", "model", "limit", "as_json"),
    named=NAMED,
    instead=OF_RECIPE,
    sampling=options.FieldOptions(SamplingParams, doors.FOLLOWED),
    engine=options.ENGINE_ALONE,
)
def recipe(*, parts: options.Parts) -> None:
    """Repeat a published evaluation, and compare the figures.

    `dise eval --recipe NAME`: a model that cannot fit is refused before it is fetched,
    and within a minute the time of all is printed. A killed run goes on.
    """
    from dise_eval.experiments.ways import Followed
    from dise_eval.experiments.waysfile import file_of

    began = time.monotonic()
    if parts.named["recipe"] == LIST:
        return _list(parts.named["as_json"])
    changes = _set(parts.instead)
    name, file = file_of(parts.named["recipe"], changes)
    if (published := file.published) is None:
        raise InputError(
            f'{name} has no "published" figure: run it with dise eval compare.', "recipe"
        )
    usual, way = file.way(name), file.way(name, parts.sampling)
    run = {**parts.named, "output": parts.named["output"] or Path("runs") / name}
    llm, problems, mode = _opened(file, changes, parts, run, way.params.seed or 0)
    deviations = _deviations(file, usual.params, problems, changes, parts)
    by = Followed(
        llm, problems, [way], mode, {}, deviations, began, published=published, usual_way=usual
    )
    finish(by, run, "ways:followed")


def _set(fields: Fields) -> Record:
    return {name: value for name, value in fields.items() if value is not None}


def _opened(
    file: WaysFile, changes: Fields, parts: options.Parts, run: Fields, seed: int
) -> tuple[LLM, ProblemSet, Mode]:
    """Return what a file, with what is given instead, asks of which model."""
    changed = file.model_copy(update={**changes})
    request = options.Parts(
        run=run,
        data={"data_revision": None, "shots_file": None, **dict(changed), **changes}
        | {"dataset": changed.asked()},
        models={"model": changed.model, "judge": changed.judge},
        graded={"grader": changed.grader},
        engine=parts.engine,
    )
    llm, problems = load(request, seed)
    return llm, problems, mode_of(request)


def _deviations(
    file: WaysFile,
    usual: SamplingParams,
    problems: ProblemSet,
    changes: Fields,
    parts: options.Parts,
) -> tuple[str, ...]:
    """Return in what a run is not the recipe's, as "temperature 0.7 instead of 0.0"."""
    fields, sampling, engine = dict(file), parts.sampling, parts.engine
    fields["shots_file"] = "the training split"
    changing = {*marked(EngineConfig, Mark.CHANGES_ANSWERS), "quantization", "lora"}
    pairs = [
        *((key, changes[key], fields[key]) for key in CHANGING if key in changes),
        *((key, sampling[key], getattr(usual, key)) for key in sampling if key != "seed"),
        *((key, engine[key], "as usual") for key in engine if key in changing),
        ("data", problems.source, file.rows or problems.source),
        ("questions", len(problems.items), file.published and file.published.questions),
    ]
    return tuple(f"{key} {new} instead of {old}" for key, new, old in pairs if new != old)


def _list(as_json: bool) -> None:
    from dise_eval.experiments.waysfile import shipped

    listed = shipped().items()
    if as_json:
        wanted: Record = {"mode": "json", "exclude_unset": True, "exclude": {"ways"}}
        rows = {name: recipe.model_dump(**wanted) for name, recipe in listed}
        print(json.dumps({"recipes": rows}, ensure_ascii=False))
        return
    for name, recipe in listed:
        if figure := recipe.published:
            what = f"{figure.percent:g} % of {recipe.dataset} by {recipe.model}"
            print(folded(f"{name}: {what}", "    "))
            print(folded(f"    {figure.source}", "    "))
