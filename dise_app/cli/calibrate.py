"""dise calibrate: turn scores into probabilities of being right, from labelled answers."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dise_app.cli import options
from dise_app.texts import refuse_existing, write_json
from dise_core.errors import InputError
from dise_core.records import Fields

if TYPE_CHECKING:
    from dise_app.calibration.making import HeldOut, Made
    from dise_core.calibration import Figures, Threshold


class MethodName(StrEnum):
    """The kinds of maps."""

    isotonic = "isotonic"
    platt = "platt"


class RuleName(StrEnum):
    """The rules that choose a threshold."""

    sgr = "sgr"
    ltt = "ltt"


LABELLED = options.Own(
    score=(
        Annotated[
            str | None,
            typer.Option(
                help="SCORER:SELECTOR:KEY=VALUE,...: which of a journal's scores, or how the "
                "scores of other lines were computed."
            ),
        ],
        None,
    ),
    model_name=(
        Annotated[str | None, typer.Option(help="The model of the scores, if the file has none.")],
        None,
    ),
    judge_name=(
        Annotated[str | None, typer.Option(help="The judge of the scores, if the file has none.")],
        None,
    ),
    score_field=(
        Annotated[
            str | None,
            typer.Option(
                help="Where lines hold the score, as outputs.0.score.value. [default: there, or "
                "score]",
                show_default=False,
            ),
        ],
        None,
    ),
    label_field=(
        Annotated[str, typer.Option(help="Where lines hold whether the answer is right.")],
        "label",
    ),
    question_field=(
        Annotated[
            str | None,
            typer.Option(help="Where lines hold the question. [default: each line has its own]"),
        ],
        None,
    ),
    skip_unscored=(
        Annotated[bool, typer.Option("--skip-unscored", help="Leave out answers without a score.")],
        False,
    ),
)
"""What the user says about the file."""


FITTED = options.Own(
    method=(
        Annotated[
            MethodName | None,
            typer.Option(
                help="[default: isotonic from 1,000 labels on, else platt]", show_default=False
            ),
        ],
        None,
    ),
    max_risk=(
        Annotated[
            float | None,
            typer.Option(
                help="Choose a threshold: at most this share of the answers above it is wrong."
            ),
        ],
        None,
    ),
    risk_confidence=(
        Annotated[
            float, typer.Option(help="The confidence with which the threshold keeps --max-risk.")
        ],
        0.95,
    ),
    rule=(Annotated[RuleName, typer.Option(help="How the threshold is chosen.")], RuleName.sgr),
    held_out=(
        Annotated[
            float,
            typer.Option(help="The share of the questions to leave out and try the result on."),
        ],
        0.0,
    ),
    answers_each=(
        Annotated[
            int | None, typer.Option(min=1, help="Fit on the first so many answers to a question.")
        ],
        None,
    ),
)
"""How the calibration is fitted."""


@options.verb(labelled=LABELLED, fitted=FITTED)
def calibrate(
    scored: Annotated[
        Path,
        typer.Argument(
            help="A folder or journal of dise eval, or JSON lines with a score and a label.",
            metavar="LABELLED",
        ),
    ],
    output: Annotated[Path, typer.Option(help="The calibration to write, with a picture beside.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the calibration that OUTPUT holds.")
    ] = False,
    as_json: options.Json = False,
    *,
    parts: options.Parts,
) -> None:
    """Turn scores into probabilities of being right.

    Fits them to labelled scores, and chooses a threshold that keeps a risk.
    """
    from dise_core.plugins import installed_catalog

    how = parts.fitted
    _check_shares(how)
    if not overwrite:
        refuse_existing(output, "--overwrite replaces it")
    from dise_app.calibration import making, rows
    from dise_app.calibration.guarantee import Promise
    from dise_app.evaluation import reliability

    given = dict(parts.labelled)
    asked = rows.Asked(model=given.pop("model_name"), judge=given.pop("judge_name"), **given)
    labels, scored_by = rows.read(scored, asked, installed_catalog())
    fitted_on, others = labels.split(how["held_out"])
    fitted_on = fitted_on.first(how["answers_each"] or len(labels))
    promise = how["max_risk"] and Promise(how["max_risk"], how["risk_confidence"])
    method = how["method"] and how["method"].value
    made = making.make(fitted_on, scored_by, method, promise, how["rule"].value, scored.name)
    tried = making.tried(made.calibration, others) if how["held_out"] else None
    arrays = (fitted_on.scores, fitted_on.is_right, fitted_on.questions)
    threshold, picture = made.calibration.threshold, output.with_suffix(".png")
    reliability.calibrated(made.probabilities, *arrays, threshold, picture)
    write_json(output, made.calibration.to_dict())
    _show(made, tried, output, as_json)


def _check_shares(how: Fields) -> None:
    for name in ("max_risk", "risk_confidence", "held_out"):
        share = how[name]
        is_none = share is None or (name == "held_out" and share == 0)
        if not is_none and not 0 < share < 1:
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} {share}: it must be between 0 and 1", name)


def _show(made: Made, tried: HeldOut | None, output: Path, as_json: bool) -> None:
    its = made.calibration
    if as_json:
        record = {
            "calibration": its.to_dict(),
            "held_out": None if tried is None else tried.to_dict(),
        }
        print(json.dumps(record, ensure_ascii=False, allow_nan=False))
        return
    print(
        f"{its.num_labels} labels of {its.num_questions} questions, "
        f"{its.num_right / its.num_labels:.1%} right; {its.scorer} over {its.selector} of "
        f"{its.model}"
    )
    print(f"{its.map.method}, on questions left out of the fit: {_told(its.figures)}")
    if its.threshold is not None:
        print(_promise(its.threshold))
    if tried is not None:
        kept = (
            "" if tried.risk is None else f"; answers {tried.coverage:.1%}, {tried.risk:.1%} wrong"
        )
        print(
            f"held out, {tried.num_labels} labels of {tried.num_questions} questions: "
            f"{_told(tried.figures)}{kept}"
        )
    pictures = [output.with_suffix(suffix) for suffix in (".png", ".svg")]
    print("written:", ", ".join(map(str, [output, *pictures])))


def _told(its: Figures) -> str:
    return (
        f"ECE {its.ece:.4f} ({its.num_bins} bins), adaptive {its.adaptive_ece:.4f}, smooth "
        f"{its.smooth_ece:.4f}; Brier {its.brier:.4f}, skill {its.brier_skill:.3f}; ROC-AUC "
        f"{its.auroc:.3f}"
    )


def _promise(its: Threshold) -> str:
    return (
        f"threshold {its.score:.6g} ({its.rule}): at most {its.max_risk:.1%} wrong with "
        f"{its.confidence:.0%} confidence; of {its.num_labels} questions with one answer each "
        f"{its.coverage:.1%} are answered, {its.risk:.1%} of these wrong"
    )
