"""dise calibrate: turn labelled scores into probabilities of being right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from dise_app.cli import options
from dise_app.cli.grouped import RARE
from dise_app.cli.options import option
from dise_app.files.texts import refuse_existing, refuse_unwritable, write_json
from dise_core.errors import InputError
from dise_core.plugins.discovery import installed_catalog

LABELLED = options.Own(
    RARE,
    score=option(
        list[str] | None,
        "SCORER:SELECTOR:KEY=VALUE,...: which of a journal's scores, or how the scores of other "
        "lines were computed; of several --selector auto chooses one.",
    ),
    selector=option(
        Literal["auto"] | None,
        "Choose scorer and selector among several scores, by folds of the questions.",
    ),
    model_name=option(str | None, "The model of the scores, if the file has none."),
    judge_name=option(str | None, "The judge of the scores, if the file has none."),
    texts=option(
        Literal["written", "given"] | None,
        "Whether the model wrote the answers or was given them, if the file does not say.",
    ),
    score_field=option(
        list[str] | None,
        "Where lines hold each score, as outputs.0.score.value. [default: there, or score]",
    ),
    label_field=option(str | None, "Where lines hold the label. [default: label, or correct]"),
    question_field=option(str | None, "Where lines hold the question. [default: each its own]"),
    skip_unscored=option(bool, "Leave out answers without a score.", False, "--skip-unscored"),
    fields=option(bool, "Lines {path, score, correct} are values of JSON.", False, "--fields"),
    decisions=option(bool, "Lines are of `dise decide --output`.", False, "--decisions"),
)
FITTED = options.Own(
    method=option(
        Literal["isotonic", "platt"] | None, "[default: isotonic from 1,000 labels on, else platt]"
    ),
    max_risk=option(float | None, "Choose a threshold: at most this share above it is wrong."),
    risk_confidence=option(float, "How surely the threshold keeps --max-risk.", 0.95),
    rule=option(Literal["sgr", "ltt"], "How the threshold is chosen.", "sgr"),
    held_out=option(float, "The share of the questions to leave out and try the result on.", 0.0),
    coverage=option(float | None, "Fit answer sets that hold this share of truths (--decisions)."),
)

MOST_USED = ("output", "score", "selector", "method", "max_risk", "as_json")


@options.verb(*MOST_USED, labelled=LABELLED, fitted=FITTED)
def calibrate(
    scored: Annotated[
        Path,
        typer.Argument(
            help="A folder or journal of dise eval, or JSON lines with a score and a label.",
            metavar="LABELLED",
        ),
    ],
    output: Annotated[Path, typer.Option(help="The calibration to write, with a picture beside.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUTPUT.")] = False,
    as_json: options.Json = False,
    *,
    parts: options.Parts,
) -> None:
    """Turn scores into probabilities of being right.

    Fits them to labelled scores, and chooses a threshold that keeps a risk.
    """
    options = {**parts.labelled, **parts.fitted}
    for name in ("max_risk", "risk_confidence", "held_out", "coverage"):
        _check_share(name, options[name])
    refuse_unwritable(output)
    if not overwrite:
        refuse_existing(output, "--overwrite replaces it")
    if options["coverage"] and not options["decisions"]:
        raise InputError("--coverage goes with --decisions", "coverage")
    from dise_eval.calibration import decided, making
    from dise_eval.calibration.guarantee import Promise
    from dise_eval.reports import reliability

    shares = options["max_risk"], options["risk_confidence"]
    risk = Promise(*shares) if options["max_risk"] else None
    promises = making.Promises(risk, options["rule"], options["coverage"])
    if options["decisions"]:
        result = decided.calibrate(scored, options, promises)
    else:
        result = making.calibrate(scored, options, promises, installed_catalog())
    written = f"{output}"
    if result.drawn is not None:
        picture = output.with_suffix(".png")
        reliability.picture(*result.drawn, picture)
        written += f", {picture}"
    write_json(output, record := result.calibration.to_dict())
    if as_json:
        about = {"calibration": record, **result.about}
        print(json.dumps(about, ensure_ascii=False, allow_nan=False))
    else:
        print("\n".join([*result.lines, f"written: {written}"]))


def _check_share(name: str, share: float | None) -> None:
    if share is not None and not 0 < share < 1 and (name, share) != ("held_out", 0):
        raise InputError(f"--{name.replace('_', '-')} {share}: it must be between 0 and 1", name)
