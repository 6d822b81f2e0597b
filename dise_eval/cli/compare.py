"""dise eval compare: compare ways to answer questions, named in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dise_app.cli import options
from dise_app.cli.grouped import GroupedCommand
from dise_app.cli.options import option
from dise_eval.cli.evaluate import DATA, RUN, app, finish, load, mode_of

INSTEAD = options.Own(
    "Instead of what the file names",
    dataset=option(str | None, "A data set, or a file of your own, ./NAME.jsonl."),
    data=DATA.options["data"],
    limit=DATA.options["limit"],
    model=option(str | None, "The model that writes where the way names none."),
    judge=options.MODELS.options["judge"],
    grader=option(str | None, "robust, d1, or the grader of answers to your own questions."),
)
HOW = ("data_revision", "shots", "shots_file", "chat")
ASKED = options.Own(**{name: DATA.options[name] for name in HOW})


@options.verb(
    *("output", "dataset", "limit", "model", "as_json"),
    run=RUN,
    instead=INSTEAD,
    asked=ASKED,
    engine=options.ENGINE,
)
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
    from dise_eval.experiments.waysfile import WaysFile, ways_of

    instead = {name: value for name, value in parts.instead.items() if value is not None}
    file = WaysFile.load(ways, instead)
    compared = ways_of(file)
    request = options.Parts(
        run=parts.run,
        data={**parts.asked, "dataset": file.dataset, "data": file.data, "limit": file.limit},
        models={"model": file.model, "judge": file.judge},
        graded={"grader": file.grader},
        engine=parts.engine,
    )
    llm, problems = load(request, compared[0].params.seed or 0, file.grader)
    models = {
        way.model: answer.opened({"model": way.model, "judge": file.judge}, parts.engine)
        for way in compared
        if way.model is not None
    }
    finish(Compared(llm, problems, compared, mode_of(request), models), parts.run, "ways:compare")


app.command("compare", cls=GroupedCommand)(compare)
