"""How well scores tell right from wrong answers, drawn or given."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from dise_core.records import json_number
from dise_eval.calibration.fitting import calibrate_scores
from dise_eval.experiments.experiments import GivenAnswers, Sampled
from dise_eval.experiments.records import (
    LENGTH,
    GivenRecord,
    SampledRecord,
    drawn_scores,
    finite,
    mean_nfe,
    rights_of,
    scores_of,
)
from dise_eval.graders.verdict import VerdictRecord
from dise_eval.reports.forest import Forest
from dise_eval.reports.page import Report
from dise_eval.reports.paper import PAPER, paper_figure
from dise_eval.reports.table import Cell, FigureTable, text
from dise_eval.statistics import metrics, resampling
from dise_eval.statistics.metrics import Rights, Scores
from dise_eval.statistics.references import references_of
from dise_eval.statistics.resampling import LEAST_OF_KIND, LEAST_QUESTIONS, Resampled

COMPARED = ("auroc_pooled", "auroc_per_question", "prr", "best_of_n")

AREAS = {
    "auroc_pooled": "ROC-AUC over all answers",
    "auroc_per_question": "mean ROC-AUC within questions",
}
CHANCE = 0.5

NUM_SHOWN = 5
"""The extractions that a report without right or without wrong answers shows."""

DEFAULT = "dise:last-10"

SHOWN = (
    ("nfe", "auroc_pooled", "auroc_per_question", PAPER, "prr", "best_of_n", "aurc"),
    ("prr_half", "eaurc", "augrc", "ece", "adaptive_ece", "smooth_ece", "brier", "brier_skill"),
)


def uncertainty(experiment: Sampled, records: Sequence[SampledRecord]) -> Report:
    """Return the report of each score, and of differences from two baselines."""
    labels, dataset = experiment.contenders.labels, experiment.questions.dataset.name
    length, passes = experiment.params.max_tokens, mean_nfe(drawn_scores(records))
    rows: list[dict[str, Cell]] = [
        {
            "scorer": label,
            "nfe": passes.get(label, 0.0),
            PAPER: paper_figure("auroc", dataset, f"{label} at {length}"),
            **_estimates(_resampled(records, label, resampling.FIGURES)),
            **_further(scores_of(records, label), rights_of(records)),
        }
        for label in (*labels, LENGTH)
    ]
    figures = FigureTable(("scorer",), rows)
    right, n = f"{rights_of(records).mean():.1%}", len(records)
    shown: list[dict[str, Cell]] = [
        {"score": row["scorer"], "right": right, "auroc": row["auroc_pooled"], "n": n}
        for row in rows
    ]
    brief = FigureTable(("score",), shown)
    by_turn = zip(*(record["answers"] for record in records), strict=True)
    answers = [*itertools.chain.from_iterable(by_turn)]
    if sentence := one_kind(answers) or too_few(answers, len(records)):
        more = {"answers": base_rate(records)}
        return Report("Uncertainty", figures, [], more, (), sentence, brief=brief)
    compared = differences(records, labels, references_of(passes))
    forests = [Forest(name, figures, name, title, CHANCE) for name, title in AREAS.items()]
    title = "difference of ROC-AUC over all answers"
    forests.append(Forest("differences", compared, "auroc_pooled", title, 0, "no difference"))
    more = {"answers": base_rate(records), "compared": compared}
    sentence = winner(records, labels)
    return Report("Uncertainty", figures, forests, more, SHOWN, sentence, brief=brief)


def too_few(answers: Sequence[VerdictRecord], num_questions: int) -> str:
    """Return a sentence on answers that are too few to tell apart, empty for enough."""
    num_right = sum(answer["is_correct"] for answer in answers)
    if resampling.is_enough(num_questions, num_right, len(answers) - num_right):
        return ""
    return (
        f"{num_right} of {len(answers)} answers to {num_questions} questions are right: too few "
        f"for a ROC-AUC, an ECE and their intervals, which take {LEAST_QUESTIONS} questions with "
        f"{LEAST_OF_KIND} right and {LEAST_OF_KIND} wrong answers. Ask more."
    )


def one_kind(answers: Sequence[VerdictRecord]) -> str:
    """Return a sentence on answers that are all right or all wrong, with what the grader
    took from the first ones; empty if there are both kinds.
    """
    num_right = sum(answer["is_correct"] for answer in answers)
    if 0 < num_right < len(answers):
        return ""
    first = [(answer["extracted"], answer["reason"]) for answer in answers[:NUM_SHOWN]]
    listing = ", ".join(f"{'nothing' if of is None else f'`{of}`'} ({why})" for of, why in first)
    kind, advice = (
        ("wrong", "ask harder questions")
        if num_right
        else ("right", "see whether --grader reads these answers as you do")
    )
    return (
        f"{num_right} of {len(answers)} answers are right; the first {len(first)} extractions: "
        f"{listing}. Without a {kind} answer there is nothing to tell apart and no ROC-AUC: "
        f"{advice}."
    )


def winner(records: Sequence[SampledRecord], labels: Sequence[str]) -> str:
    """Return a sentence on the best pooled ROC-AUC, the next, and DiSE's best."""
    areas = {label: _resampled(records, label, COMPARED[:1])["auroc_pooled"] for label in labels}
    first, *lower = sorted(labels, key=lambda label: -areas[label].value)
    sentence = f"`{first}` has the highest pooled ROC-AUC on these labels, {areas[first].value:.3f}"
    of_dise = [rival for rival in lower if rival.partition(":")[0] == "dise"]
    for rival in dict.fromkeys([*lower[:1], *of_dise[:1]]):
        beside = areas[first].minus(areas[rival]).estimate
        sentence += f"; beside `{rival}` {text(beside)}"
        sentence += "" if beside.low > 0 else ", no difference seen"
    return f"{sentence}."


def correctness(experiment: Sampled, records: Sequence[SampledRecord]) -> Report:
    """Return the report of the mean scores of right and of wrong answers."""
    title, report = "Scores of right and wrong answers", uncertainty(experiment, records)
    if not report.forests:
        return replace(report, title=title)
    return replace(
        report,
        title=title,
        brief=None,
        forests=[replace(report.forests[0], name="correctness")],
        more={"answers": report.more["answers"]},
        shown=[("mean_score_right", "mean_score_wrong", "auroc_pooled")],
    )


def selectors(experiment: Sampled, records: Sequence[SampledRecord]) -> Report:
    """Return the report of how well DiSE tells right from wrong by each selector."""
    report, labels = uncertainty(experiment, records), experiment.contenders.labels
    title = "Which positions to score"
    if not report.forests:
        return replace(report, title=title)
    default = DEFAULT if DEFAULT in labels else labels[0]
    return replace(
        report,
        title=title,
        forests=[replace(report.forests[0], name="selectors")],
        more={**report.more, "compared": differences(records, labels, [default])},
        shown=[(*AREAS, "best_of_n")],
    )


def given(experiment: GivenAnswers, records: Sequence[GivenRecord]) -> Report:
    """Return each score's report by group, beside the dearest baseline."""
    labels, dataset = experiment.contenders.labels, experiment.questions.dataset.name
    passes = mean_nfe(record["scores"] for record in records)
    reference, rows = references_of(passes)[0], list[dict[str, Cell]]()
    shown: list[dict[str, Cell]] = []
    for group in dict.fromkeys(record["group"] for record in records):
        within = [record for record in records if record["group"] == group]
        compared, its_passes = _apart(within, reference)[0], mean_nfe(r["scores"] for r in within)
        num_right = sum(record["is_correct"] for record in within)
        for label in labels:
            auroc, of_totals = _apart(within, label)
            values = _column(within, label, "value")
            rows.append(
                {
                    "group": group,
                    "scorer": label,
                    "nfe": its_passes[label],
                    "num_answers": len(within),
                    "num_right": num_right,
                    "auroc": auroc.estimate,
                    PAPER: paper_figure("auroc", dataset, f"{label} at {group}"),
                    "auroc_log_likelihood": None if of_totals is None else of_totals.estimate,
                    "difference": None if label == reference else auroc.minus(compared).estimate,
                    "median_perplexity": float(np.median(np.exp(-values))),
                }
            )
            row: dict[str, Cell] = {"group": group, "score": label}
            right, n = f"{num_right / len(within):.1%}", len(within)
            shown.append({**row, "right": right, "auroc": auroc.estimate, "n": n})
    figures = FigureTable(("group", "scorer"), rows)
    brief = FigureTable(("group", "score"), shown)
    forest = Forest("given", figures, "auroc", "ROC-AUC", CHANCE)
    sentence = one_kind(records) or too_few(records, len(records)) or _few_in(records)
    return Report("Given answers", figures, [forest], sentence=sentence, brief=brief)


def _few_in(records: Sequence[GivenRecord]) -> str:
    """Return a sentence on the groups whose answers are too few, empty without any."""
    groups: dict[str, list[GivenRecord]] = {}
    for record in records:
        groups.setdefault(record["group"], []).append(record)
    few = [f"`{name}`: {note}" for name, of in groups.items() if (note := too_few(of, len(of)))]
    return " ".join(few)


def base_rate(records: Sequence[SampledRecord]) -> FigureTable:
    """Return the numbers of answers, and the share of right ones."""
    rights = rights_of(records)
    row: dict[str, Cell] = {
        "answers": "all",
        "num_answers": rights.size,
        "right": resampling.mean(rights.mean(axis=1)),
        "questions_with_both": int(resampling.has_both(rights).sum()),
    }
    return FigureTable(("answers",), [row])


def differences(
    records: Sequence[SampledRecord], labels: Sequence[str], references: Sequence[str]
) -> FigureTable:
    """Return the differences of the other contenders from each reference in COMPARED."""
    figures = {label: _resampled(records, label, COMPARED) for label in labels}
    rows: list[dict[str, Cell]] = []
    for reference, label in itertools.product(references, labels):
        if label != reference:
            beside = figures[reference]
            minus = {name: figure.minus(beside[name]) for name, figure in figures[label].items()}
            rows.append({"minus": reference, "scorer": label, **_estimates(minus)})
    return FigureTable(("minus", "scorer"), rows)


def _resampled(
    records: Sequence[SampledRecord], label: str, names: Iterable[str]
) -> dict[str, Resampled]:
    scores, rights = scores_of(records, label), rights_of(records)
    return {name: resampling.resample(name, scores, rights) for name in names}


def _estimates(figures: Mapping[str, Resampled]) -> dict[str, Cell]:
    return {name: figure.estimate for name, figure in figures.items()}


def _further(scores: Scores, is_right: Rights) -> dict[str, Cell]:
    """Return figures without intervals, those of probabilities of enough answers alone."""
    flat = scores.ravel(), is_right.ravel()
    num_right = int(is_right.sum())
    is_enough = resampling.is_enough(len(scores), num_right, is_right.size - num_right)
    ranking = (metrics.prr_half, metrics.eaurc, metrics.augrc)
    agreement = (
        *(metrics.ece, metrics.adaptive_ece, metrics.smooth_ece),
        *(metrics.brier, metrics.brier_skill),
    )
    probabilities = calibrate_scores(scores, is_right) if is_enough else None
    return {
        **{figure.__name__: float(figure(*flat)) for figure in ranking},
        **{
            figure.__name__: None if probabilities is None else figure(probabilities, is_right)
            for figure in agreement
        },
        "num_bins": metrics.NUM_BINS,
        "mean_score_right": _mean(scores[is_right]),
        "mean_score_wrong": _mean(scores[~is_right]),
    }


def _apart(records: Sequence[GivenRecord], label: str) -> tuple[Resampled, Resampled | None]:
    """Return the ROC-AUC of a contender's scores and, if any, log-likelihoods."""
    is_right = np.array([[record["is_correct"]] for record in records])
    auroc = resampling.resample("auroc_pooled", _column(records, label, "value"), is_right)
    if any("log_likelihood" not in record["scores"][label] for record in records):
        return auroc, None
    totals = _column(records, label, "log_likelihood")
    return auroc, resampling.resample("auroc_pooled", totals, is_right)


def _column(
    records: Sequence[GivenRecord], label: str, name: Literal["value", "log_likelihood"]
) -> Scores:
    """Return one field of a contender's scores of given answers, float64 [Q, 1]."""
    return np.array([[finite(record["scores"][label].get(name))] for record in records])


def _mean(values: Scores) -> float | None:
    defined = values[np.isfinite(values)]
    return json_number(float(defined.mean())) if len(defined) else None
