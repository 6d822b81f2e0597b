"""Writes report.md, results.json and the plots of each experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dise_app.evaluation import metrics, paper, plots, reliability, results
from dise_app.evaluation.experiments import Given, Lengths, Likelihood, Sampled
from dise_app.evaluation.writing import number, table, with_interval, write
from dise_core.records import Fields, Record


def uncertainty(experiment: Sampled, records: Sequence[Record], output: Path) -> None:
    """Write results.json, report.md and plots of how well each score tells right from wrong."""
    labels = experiment.contenders.labels
    figures = results.uncertainty(records, labels)
    reference = _paper(paper.AUROC, experiment, labels)
    rows = [
        (
            label,
            f"{row['nfe']:.1f}",
            with_interval(row["auroc_pooled"]),
            with_interval(row["auroc_per_question"]),
            number(reference.get(label)),
            *(number(row[name]["value"]) for name in ("prr", "aurc")),
            *(number(row[name]) for name in ("ece", "brier")),
        )
        for label, row in figures.items()
    ]
    pictures = _uncertainty_plots(experiment, records, figures, output)
    both = next(iter(figures.values()))["auroc_per_question"]["num_questions"]
    head = "scorer | NFE | ROC-AUC pooled | per question | the paper | PRR | AURC | ECE | Brier"
    text = [
        "ROC-AUC: the chance that a right answer scores above a wrong one, over all answers, and "
        "as the mean within the "
        f"{both} questions that have both kinds; in brackets 95 % intervals over questions. PRR: "
        "1 for an oracle, 0 for "
        "chance. ECE and Brier after isotonic calibration on other questions. The paper's figure "
        "is that of LLaDA-8B at the "
        "same length.",
        table(head, rows),
        *_more(figures),
        *(f"![{name}]({name}.png)" for name in pictures),
    ]
    write(output, "Uncertainty", experiment, figures, text)


def _uncertainty_plots(
    experiment: Sampled, records: Sequence[Record], figures: Fields, output: Path
) -> list[str]:
    """Draw the pictures of the report, and return their names."""
    labels = experiment.contenders.labels
    tables = {label: results.table_of(records, label) for label in labels}
    both = next(iter(figures.values()))["auroc_per_question"]["num_questions"]
    for name, title in (("pooled", "pooled"), ("per_question", f"within {both} questions")):
        reference = _paper(paper.AUROC, experiment, labels) if name == "pooled" else None
        rows = {label: row[f"auroc_{name}"] for label, row in figures.items()}
        plots.forest(rows, title, "ROC-AUC", output / f"auroc_{name}.png", reference)
    plots.curves(tables, output / "curves.png")
    plots.histograms(tables, output / "scores.png")
    if len(records) > 1:
        probable = {k: (metrics.calibrated(*table), table[1]) for k, table in tables.items()}
        reliability.diagrams(probable, output / "reliability.png")
    names = ["auroc_pooled", "auroc_per_question", "curves", "scores"]
    return [*names, "reliability"] if len(records) > 1 else names


def _more(figures: Fields) -> list[str]:
    """Return the paragraphs of the report on the other metrics."""
    names = ("prr_half", "eaurc", "augrc", "adaptive_ece", "smooth_ece", "brier_skill")
    head = (
        "scorer | PRR, at most half rejected | E-AURC | AUGRC | adaptive ECE | smooth ECE | Brier "
        "skill"
    )
    rows = [(label, *(number(row[name]) for name in names)) for label, row in figures.items()]
    about = (
        f"ECE and adaptive ECE have {metrics.NUM_BINS} bins, of equal width and of equal mass; the "
        "smooth ECE needs none. E-AURC is the AURC in excess of an oracle's, AUGRC the area under "
        "the generalized curve; the Brier skill is 1 for an oracle and 0 for the base rate."
    )
    return [about, table(head, rows)]


def given(experiment: Given, records: Sequence[Record], output: Path) -> None:
    """Write results.json and report.md of how well each score tells given answers apart."""
    figures = results.given(records, experiment.contenders.labels)
    name = experiment.questions.dataset.name
    rows = [
        (
            group,
            label,
            *(str(row[count]) for count in ("num_answers", "num_right")),
            with_interval(row["auroc"]),
            number(paper.figure_of(paper.AUROC, name, label, int(group) if group.isdigit() else 0)),
            with_interval(row["auroc_log_likelihood"] or {"value": None}),
            number(row["median_perplexity"], 2),
        )
        for group, each in figures.items()
        for label, row in each.items()
    ]
    columns = "scorer | answers | right | ROC-AUC | the paper | of the log-likelihood"
    head = f"{experiment.by or 'answers'} | {columns} | median perplexity"
    write(output, "Given answers", experiment, figures, [table(head, rows)])


def best_of_n(experiment: Sampled, records: Sequence[Record], output: Path) -> None:
    """Write results.json, report.md and a plot of what choosing by score gains."""
    figures = results.best_of_n(records, experiment.contenders.labels)
    reference = _paper(paper.BEST_OF_5, experiment, experiment.contenders.labels)
    rows = [
        (name, with_interval(row), number(reference.get(name))) for name, row in figures.items()
    ]
    plots.forest(
        figures,
        f"best of {experiment.params.n}",
        "share of questions solved",
        output / "best_of_n.png",
        reference,
    )
    adaptive = results.adaptive(records, experiment.contenders.labels)
    text = [
        table("answer chosen by | solved | the paper", rows),
        "![best of n](best_of_n.png)",
        *_adaptive(adaptive, figures, records, experiment.params.n),
    ]
    title = f"Best of {experiment.params.n}"
    write(output, title, experiment, {**figures, "adaptive": adaptive}, text)


def _adaptive(adaptive: Fields, plain: Fields, records: Sequence[Record], most: int) -> list[str]:
    """Return the paragraphs on what drawing until an answer is sure saves."""
    rows = [
        (
            f"{label}, stop at {stop}",
            with_interval(row["accuracy"]),
            f"{100 * (row['accuracy']['value'] - plain[label]['value']):+.1f}",
            f"{row['answers']:.2f}",
            f"{1 - row['answers'] / most:.0%}",
        )
        for label, each in adaptive.items()
        for stop, row in each.items()
    ]
    about = (
        f"Adaptive best of {most}: answers are drawn 1, 1, 2, 4 and so on at a time until one has "
        "that probability of being right, by isotonic calibration on other questions."
    )
    head = "drawn by | solved | points to all | answers | fewer answers"
    return [about, *_passes(records, most), table(head, rows)] if rows else []


def _passes(records: Sequence[Record], most: int) -> list[str]:
    """Return the paragraph on passes, for records that hold them."""
    passes = [record["nfe"] for record in records if "nfe" in record]
    if not passes:
        return []
    together, alone = (float(np.mean([each[kind] for each in passes])) for kind in ("all", "one"))
    return [
        f"One answer takes {alone:.1f} forward passes, all {most} together {together:.1f}: "
        "answers share passes while they are still the same, also with those of earlier waves."
    ]


def likelihood(experiment: Likelihood, records: Sequence[Record], output: Path) -> None:
    """Write results.json, report.md and a plot of how often the likeliest candidate is right."""
    figures = results.likelihood(records, experiment.contenders.labels)
    reference = paper.LIKELIHOOD.get(experiment.questions.dataset.name, {})
    rows = [
        (label, f"{row['nfe']:.1f}", with_interval(row["accuracy"]), number(reference.get(label)))
        for label, row in figures.items()
    ]
    accuracies = {label: row["accuracy"] for label, row in figures.items()}
    plots.forest(
        accuracies,
        "the likeliest candidate",
        "share that is right",
        output / "likelihood.png",
        reference,
    )
    text = [
        table("scorer | NFE a candidate | accuracy | the paper", rows),
        "![likelihood](likelihood.png)",
    ]
    write(output, "Likelihood", experiment, figures, text)


def length(experiment: Lengths, records: Sequence[Record], output: Path) -> None:
    """Write results.json, report.md and a plot of what each length controller solves and costs."""
    figures = results.lengths(records)
    reference = {
        name: paper.length_figure_of(experiment.questions.dataset.name, name) for name in figures
    }
    rows = [
        (
            name,
            with_interval(row["accuracy"]),
            number(reference[name]),
            *(f"{row[column]:.1f}" for column in ("nfe", "num_tokens")),
            f"{row['seconds']:.2f}",
            _counts(row["stopped_by"]),
        )
        for name, row in figures.items()
    ]
    plots.cost(
        figures,
        lambda name: name.split(",")[0].split(" from")[0],
        "length control",
        output / "length.png",
    )
    at_once = experiment.llm.config.max_num_seqs
    text = [
        table("length | solved | the paper | NFE | tokens | seconds | stopped by", rows),
        f"Seconds are from an answer's first step to its last, {at_once} answers under way at "
        "once. The paper's "
        "DiSE-flexible has K = 4, D = 20, M_max = 10.",
        "![length](length.png)",
    ]
    write(output, "Length", experiment, figures, text)


def _paper(table: Any, experiment: Sampled, labels: Sequence[str]) -> dict[str, float]:
    name, max_tokens = experiment.questions.dataset.name, experiment.params.max_tokens
    found = {label: paper.figure_of(table, name, label, max_tokens) for label in labels}
    return {label: figure for label, figure in found.items() if figure is not None}


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items() if name != "None") or "-"
