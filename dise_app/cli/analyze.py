"""dise analyze: the paper's analyses, one command each; a killed run resumes when run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dise_app import doors
from dise_app.cli import evaluate, options
from dise_app.cli.grouped import GroupedCommand
from dise_core.params import SamplingParams
from dise_core.records import Record

app = typer.Typer(
    no_args_is_help=True,
    help="Rerun the paper's analyses: JSON, a report and pictures.",
    rich_markup_mode=None,
)

SELECTORS = (
    "full",
    "response",
    "response-text",
    "prompt",
    "first-10",
    "mid-10",
    "last-10",
    "last-5",
    "last-20",
    "first-block",
    "last-block",
)
"""The selectors to compare."""

CORRECTNESS = ("dise:full", "dise:last-10")

Texts = Annotated[
    Path | None,
    typer.Option(
        help=(
            'JSON lines with "id" and "response": natural texts to probe instead of the model\'s '
            "own answers."
        )
    ),
]
Trials = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Positions probed in each text. [default: 80 for ranks, 10 for distances]",
        show_default=False,
    ),
]


def probe(name: str, about: str) -> options.Verb:
    """Return the verb that runs one probe on the model's own answers, or on those in --texts."""
    sampling = options.Fields(SamplingParams, doors.PROBED, seed=0)

    @options.verb(
        data=evaluate.DATA, models=options.TARGET, sampling=sampling, engine=options.ENGINE_ALONE
    )
    @evaluate.described(about)
    def command(
        output: evaluate.Output,
        texts: Texts = None,
        trials: Trials = None,
        as_json: options.Json = False,
        *,
        parts: options.Parts,
    ) -> None:
        from dise_app.analysis import probes, report
        from dise_app.cli.answer import load

        params = SamplingParams(**parts.sampling, logprobs=None)
        loaded = evaluate.load_questions(parts.data, params.seed or 0)
        llm = load(parts.models, parts.engine)
        kinds: Record = {
            "ranks": probes.Ranks,
            "distances": probes.Distances,
            "coherence": probes.Coherence,
        }
        more = {"num_trials": trials} if trials is not None and name != "coherence" else {}
        given = _responses(texts, loaded)
        experiment = kinds[name](llm, loaded, params, given, params.seed or 0, **more)
        evaluate.finish(experiment, output, getattr(report, name), as_json)

    return command


def _responses(path: Path | None, loaded: Any) -> dict[str, str]:
    """Return a file's responses by question id. Raises InputError for a malformed line or an
    unknown question id.
    """
    from dise_app.cli import jsonl
    from dise_core import InputError

    responses: dict[str, str] = {}
    known = {question.id for question in loaded.items}
    for line in jsonl.read_lines(path) if path is not None else ():
        if line.problem is not None:
            raise InputError(f"line {line.number} of {path} {line.problem}", "texts")
        question, response = str(line.record.get("id")), line.record.get("response")
        if not isinstance(response, str) or question not in known:
            raise InputError(
                f'line {line.number} of {path} needs "response" and an "id" that a question has',
                "texts",
            )
        responses[question] = response
    return responses


app.command("ranks", cls=GroupedCommand)(
    probe("ranks", "How high does the true token rank under a random one?")
)
app.command("distances", cls=GroupedCommand)(
    probe("distances", "How far apart are true, masked and random predictions?")
)
app.command("coherence", cls=GroupedCommand)(
    probe("coherence", "How much surer is the model of natural than of random text?")
)
app.command("correctness", cls=GroupedCommand)(
    evaluate.sampled(
        "dise_app.analysis.report:correctness",
        "Are right answers scored above wrong ones?",
        CORRECTNESS,
    )
)
app.command("selectors", cls=GroupedCommand)(
    evaluate.sampled(
        "dise_app.analysis.report:selectors",
        "Which positions should DiSE be taken over?",
        tuple(f"dise:{name}" for name in SELECTORS),
    )
)
