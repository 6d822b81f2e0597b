"""dise eval --recipe: repeat a published evaluation. dise recipes: list them."""

from __future__ import annotations

import json
import time
from pathlib import Path

from dise_app.cli import options
from dise_app.cli.grouped import GroupedCommand
from dise_app.cli.options import option
from dise_app.terminal.lines import folded
from dise_core.params.engine import EngineConfig
from dise_core.params.marks import Mark, marked
from dise_core.params.requests import SamplingParams
from dise_core.records import Fields, Record
from dise_eval.cli import compare, doors
from dise_eval.cli.evaluate import DATA, app, finish, load, mode_of
from dise_eval.datasets.questions import ProblemSet
from dise_eval.recipes.recipe import Recipe, recipe_of, shipped

NAMED = options.Own(
    recipe=option(str, "A name of `dise recipes`, or a file, my.json.", options.REQUIRED),
    output=option(Path | None, "Folder of the run. [default: runs/NAME]"),
    as_json=(options.Json, False),
)
ASKED = ("data", "data_revision", "limit", "shots_file", "chat")
INSTEAD = options.Own(
    "Instead of what the recipe says",
    model=option(str | None, "The model that answers."),
    grader=compare.INSTEAD.options["grader"],
    **{name: DATA.options[name] for name in ASKED},
)
CHANGING = ("model", "grader", "chat", "shots_file")
HOW = options.FieldOptions(SamplingParams, doors.FOLLOWED)


@options.verb(
    *("recipe", "output", "model", "limit", "as_json"),
    named=NAMED,
    instead=INSTEAD,
    sampling=HOW,
    engine=options.ENGINE_ALONE,
)
def recipe(*, parts: options.Parts) -> None:
    """Repeat a published evaluation, and compare the figures.

    `dise eval --recipe NAME`: a model that cannot fit is refused before it is fetched,
    and within a minute the time of all is told. A killed run goes on.
    """
    from dise_eval.experiments.waysfile import Way
    from dise_eval.recipes.following import Followed

    began = time.monotonic()
    given = {key: value for key, value in parts.instead.items() if value is not None}
    name, followed = recipe_of(parts.named["recipe"], given)
    params, chosen = followed.params(parts.sampling), {**dict(followed), **given}
    dataset = followed.dataset_for(chosen["grader"])
    asked = options.Parts(
        run={**parts.named, "output": parts.named["output"] or Path("runs") / name},
        data={**parts.instead, **chosen, "dataset": dataset},
        models={"model": chosen["model"]},
        graded=chosen,
        engine=parts.engine,
    )
    llm, problems = load(asked, params.seed or 0)
    deviations = _deviations(followed, problems, given, parts.sampling, parts.engine)
    way, mode = Way(name, params), mode_of(asked)
    run = Followed(llm, problems, [way], mode, {}, deviations, began, recipe=followed)
    finish(run, asked.run, "recipes:followed")


def _deviations(
    recipe: Recipe, problems: ProblemSet, given: Fields, sampling: Fields, engine: Fields
) -> tuple[str, ...]:
    """Return in what a run is not the recipe's, as "temperature 0.7 instead of 0.0"."""
    usual = recipe.params({})
    fields = {**dict(recipe), "shots_file": "the training split"}
    changing = {*marked(EngineConfig, Mark.CHANGES_ANSWERS), "quantization", "lora"}
    pairs = [
        *((key, given[key], fields[key]) for key in CHANGING if key in given),
        *((key, sampling[key], getattr(usual, key)) for key in sampling if key != "seed"),
        *((key, engine[key], "as usual") for key in engine if key in changing),
        ("data", problems.source, recipe.rows or problems.source),
        ("questions", len(problems.items), recipe.published.questions),
    ]
    return tuple(f"{key} {new} instead of {old}" for key, new, old in pairs if new != old)


@options.verb()
def recipes(as_json: options.Json = False) -> None:
    """List the published evaluations that `dise eval --recipe` repeats."""
    listed = shipped().items()
    if as_json:
        wanted: Record = {"mode": "json", "exclude_unset": True}
        rows = {name: recipe.model_dump(**wanted) for name, recipe in listed}
        print(json.dumps({"recipes": rows}, ensure_ascii=False))
        return
    for name, recipe in listed:
        figure = recipe.published
        print(folded(f"{name}: {figure.percent:g} % of {recipe.dataset} by {recipe.model}", "    "))
        print(folded(f"    {figure.source}", "    "))


app.command("recipe", cls=GroupedCommand)(recipe)
