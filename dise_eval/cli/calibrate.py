"""dise calibrate: turn labelled scores into probabilities of being right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dise_app.cli import options
from dise_app.cli.grouped import RARE
from dise_app.cli.options import option
from dise_app.files.texts import refuse_existing, refuse_unwritable, write_json
from dise_core.errors import InputError
from dise_core.plugins.discovery import installed_catalog
from dise_core.records import Record

if TYPE_CHECKING:
    from dise_core.scoring.calibration import Calibration, Figures, Fit, Threshold
    from dise_eval.calibration.fitting import Labels
    from dise_eval.calibration.making import HeldOut, Made

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
    how = parts.fitted
    for name in ("max_risk", "risk_confidence", "held_out", "coverage"):
        _check_share(name, how[name])
    refuse_unwritable(output)
    if not overwrite:
        refuse_existing(output, "--overwrite replaces it")
    if parts.labelled["decisions"]:
        from dise_eval.calibration import decided

        decided.calibrate(scored, output, {**parts.labelled, **how}, as_json)
        return
    if how["coverage"]:
        raise InputError("--coverage goes with --decisions", "coverage")
    from dise_eval.calibration import making, rows
    from dise_eval.calibration.guarantee import Promise
    from dise_eval.reports import reliability

    labels, by = rows.read(scored, parts.labelled, installed_catalog())
    promise = how["max_risk"] and Promise(how["max_risk"], how["risk_confidence"])

    def fit(group: Labels, promise: Promise | None = promise) -> Made:
        return making.make(group, by, how["method"], promise, how["rule"], scored.name)

    if parts.labelled["fields"]:
        if how["held_out"] or labels.scores.ndim > 1:
            raise InputError("--fields takes one --score and no --held-out")
        groups, overall = rows.by_field(scored, parts.labelled), fit(labels, None).calibration
        return _show_fields(*making.make_fields(groups, overall, fit), output, as_json)
    training, holdout = labels.split(how["held_out"])
    result = fit(training)
    tried = making.try_out(result, holdout) if how["held_out"] else None
    picture = output.with_suffix(".png")
    reliability.picture(result.probabilities, result.labels, result.search, picture)
    write_json(output, result.calibration.to_dict())
    _show(result, tried, output, as_json)


def _check_share(name: str, share: float | None) -> None:
    if share is not None and not 0 < share < 1 and (name, share) != ("held_out", 0):
        raise InputError(f"--{name.replace('_', '-')} {share}: it must be between 0 and 1", name)


def _show_fields(
    calibration: Calibration, left_out: dict[str, str], output: Path, as_json: bool
) -> None:
    write_json(output, record := calibration.to_dict())
    if as_json:
        print(json.dumps({"calibration": record, "left_out": left_out}, allow_nan=False))
        return
    lines = {
        name: "; ".join([_fitted(fit), *([_promise(fit.threshold)] if fit.threshold else [])])
        for name, fit in calibration.fields.items()
    }
    lines |= {name: f"left out, {reason}" for name, reason in left_out.items()}
    print("\n".join(f"{name}: {text}" for name, text in (lines | {"written": f"{output}"}).items()))


def _fitted(fit: Fit) -> str:
    from dise_eval.statistics.resampling import is_enough

    share, method = fit.num_right / fit.num_labels, fit.map and fit.map.method
    is_told = is_enough(fit.num_questions, fit.num_right, fit.num_labels - fit.num_right)
    return (
        f"{fit.num_labels} labels of {fit.num_questions} questions, {share:.1%} right; {method}, "
        f"on questions left out of the fit: {_told(fit.figures if is_told else None)}"
    )


def _show(result: Made, tried: HeldOut | None, output: Path, as_json: bool) -> None:
    calibration = result.calibration
    if as_json:
        held_out = tried and tried.to_dict()
        record: Record = {"calibration": calibration.to_dict(), "held_out": held_out}
        record |= {"threshold_reason": result.search.reason} if result.search else {}
        print(json.dumps(record, ensure_ascii=False, allow_nan=False))
        return
    print(f"{calibration.scorer} over {calibration.selector} of {calibration.model}")
    print(f"holds for {calibration.holds_for}")
    if calibration.compared is not None:
        print(calibration.compared)
    print(_fitted(calibration))
    if calibration.threshold is not None and result.search is not None:
        print(_promise(calibration.threshold))
        print(f"it is there because {result.search.reason}")
    if tried is not None:
        answered = (
            "" if tried.risk is None else f"; answers {tried.coverage:.1%}, {tried.risk:.1%} wrong"
        )
        print(
            f"held out, {tried.num_labels} labels of {tried.num_questions} questions: "
            f"{_told(tried.figures)}{answered}"
        )
    print(f"written: {output}, {output.with_suffix('.png')}")


def _told(figures: Figures | None) -> str:
    from dise_eval.statistics.resampling import LEAST_OF_KIND, LEAST_QUESTIONS

    if figures is None:
        return (
            f"too few for an ECE or a ROC-AUC, which take {LEAST_QUESTIONS} questions with "
            f"{LEAST_OF_KIND} right and {LEAST_OF_KIND} wrong answers"
        )
    return (
        f"ECE {figures.ece:.4f} ({figures.num_bins} bins), adaptive {figures.adaptive_ece:.4f}, "
        f"smooth {figures.smooth_ece:.4f}; Brier {figures.brier:.4f}, skill "
        f"{figures.brier_skill:.3f}; ROC-AUC {figures.auroc:.3f}"
    )


def _promise(threshold: Threshold) -> str:
    return (
        f"threshold {threshold.score:.6g} ({threshold.rule}): at most "
        f"{100 * threshold.max_risk:g}% wrong with {100 * threshold.confidence:g}% confidence; of "
        f"{threshold.num_labels} questions with one answer each {threshold.coverage:.1%} answered, "
        f"{threshold.risk:.1%} of it wrong"
    )
