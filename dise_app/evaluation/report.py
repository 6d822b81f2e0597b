"""Writes report.md, results.json and the plots of each experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from dise_app.evaluation import choosing, paper, plots, results
from dise_app.evaluation.comparison import (
    about_differences,
    beside_chance,
    conclusion,
    difference_in_words,
    percentage,
)
from dise_app.evaluation.experiments import Given, Lengths, Likelihood, Sampled
from dise_app.evaluation.uncertainty import base_rate, papers_figures, uncertainty
from dise_app.evaluation.writing import number, picture, table, with_interval, write
from dise_core.records import Fields, Record

__all__ = ["best_of_n", "given", "length", "likelihood", "uncertainty"]


def given(experiment: Given, records: Sequence[Record], output: Path) -> None:
    """Write results.json, report.md and a plot of how well each score tells given answers apart."""
    figures = results.given(records, experiment.contenders.labels)
    name = experiment.questions.dataset.name
    rows = [
        (
            group,
            label,
            f"{row['nfe']:.1f}",
            str(row["num_answers"]),
            f"{row['num_right']} ({row['num_right'] / row['num_answers']:.1%})",
            with_interval(row["auroc"]),
            number(paper.figure_of(paper.AUROC, name, label, int(group) if group.isdigit() else 0)),
            with_interval(row["auroc_log_likelihood"] or {"value": None}),
            number(row["median_perplexity"], 2),
        )
        for group, each in figures.items()
        for label, row in each.items()
    ]
    columns = "scorer | NFE | answers | right | ROC-AUC | the paper | of the log-likelihood"
    head = f"{experiment.by or 'answers'} | {columns} | median perplexity"
    aurocs = {
        f"{label} {group}".removesuffix(" all"): row["auroc"]
        for group, each in figures.items()
        for label, row in each.items()
    }
    title, axis = f"by {experiment.by or 'scorer'}", "ROC-AUC, 95 % interval (dotted: chance)"
    plots.forest(aurocs, title, axis, output / "given.png", guide=0.5)
    text = [
        *_given_conclusions(figures, experiment.by or ""),
        table(head, rows),
        picture("given", "ROC-AUC of each scorer"),
    ]
    write(output, "Given answers", experiment, figures, text)


def _given_conclusions(figures: Fields, by: str) -> Iterator[str]:
    """Yield what the scores of each group show, beside chance and beside each other."""
    for group, each in figures.items():
        chance = {label: beside_chance(row["auroc"]) for label, row in each.items()}
        told = f"ROC-AUC, {by} {group}" if by else "ROC-AUC"
        yield conclusion(told, "chance (0.5)", chance)
        [first] = [label for label, row in each.items() if row["difference"] is None]
        beside = {label: row["difference"] for label, row in each.items() if row["difference"]}
        if beside:
            yield conclusion(told, f"`{first}`", beside)


def best_of_n(experiment: Sampled, records: Sequence[Record], output: Path) -> None:
    """Write results.json, report.md and a plot of what choosing by score gains."""
    labels = experiment.contenders.labels
    figures = choosing.best_of_n(records, labels)
    reference = papers_figures(paper.BEST_OF_5, experiment, labels)
    rows = [
        (
            name,
            with_interval(row),
            *(difference_in_words(row[f"above {other}"], 1) for other in choosing.BESIDE),
            f"{row['score_nfe']:.1f}",
            number(reference.get(name)),
        )
        for name, row in figures.items()
    ]
    title, axis = f"best of {experiment.params.n}", "share of questions solved, 95 % interval"
    at_random = figures["mean of N"]["value"]
    plots.forest(figures, title, axis, output / "best_of_n.png", reference, guide=at_random)
    adaptive = choosing.adaptive(records, labels)
    text = [
        base_rate(records),
        *(_chosen(figures, labels, other) for other in choosing.BESIDE),
        table(
            "answer chosen by | solved | above mean of N | above majority vote | NFE of its "
            "scores | the paper",
            rows,
        ),
        about_differences(len(labels)),
        picture("best_of_n", "share solved by each way to choose; dotted: an answer at random"),
        *_adaptive(adaptive, records, experiment.params.n),
    ]
    title = f"Best of {experiment.params.n}"
    write(output, title, experiment, {**figures, "adaptive": adaptive}, text)


def _chosen(figures: Fields, labels: Sequence[str], other: str) -> str:
    """Return the conclusion on choosing by score beside another way to choose."""
    differences = {label: figures[label][f"above {other}"] for label in labels}
    beside = f"{other} ({percentage(figures[other])})"
    return conclusion("Questions solved", beside, differences, digits=1)


def _adaptive(adaptive: Fields, records: Sequence[Record], most: int) -> list[str]:
    """Return the paragraphs on what drawing until an answer is sure saves."""
    rows = [
        (
            f"{label}, stop at {stop}",
            with_interval(row["accuracy"]),
            difference_in_words(row["difference"], 1),
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
    head = "drawn by | solved | beside all drawn | answers | fewer answers"
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
        (
            label,
            f"{row['nfe']:.1f}",
            with_interval(row["accuracy"]),
            difference_in_words(row["difference"] or {"value": None}, 1),
            number(reference.get(label)),
        )
        for label, row in figures.items()
    ]
    accuracies = {label: row["accuracy"] for label, row in figures.items()}
    chance = float(np.mean([1 / len(record["candidates"]) for record in records]))
    title, axis = "the likeliest candidate", "share that is right, 95 % interval (dotted: chance)"
    plots.forest(accuracies, title, axis, output / "likelihood.png", reference, guide=chance)
    [first] = [label for label, row in figures.items() if row["difference"] is None]
    beside = {label: row["difference"] for label, row in figures.items() if row["difference"]}
    its = f"`{first}` ({percentage(accuracies[first])}, NFE {figures[first]['nfe']:.1f})"
    text = [
        f"Base rate: a candidate at random is right in {chance:.1%} of the questions.",
        conclusion("Questions answered right", its, beside, digits=1),
        table(f"scorer | NFE a candidate | accuracy | minus {first} | the paper", rows),
        about_differences(len(beside)),
        picture("likelihood", "share of questions whose likeliest candidate is right"),
    ]
    write(output, "Likelihood", experiment, figures, text)


def length(experiment: Lengths, records: Sequence[Record], output: Path) -> None:
    """Write results.json, report.md and a plot of what each length controller solves and costs."""
    beside = _longest(experiment)
    figures = results.lengths(records, beside)
    rows = [
        (
            name,
            with_interval(row["accuracy"]),
            difference_in_words(row["difference"] or {"value": None}, 1),
            number(paper.length_figure_of(experiment.questions.dataset.name, name)),
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
    head = "length | solved | more than its fixed | the paper | NFE | tokens | seconds | stopped by"
    text = [
        *_lengths_concluded(figures, beside),
        table(head, rows),
        "More than its fixed: beside the fixed length of its base and "
        f"{experiment.max_iterations} tokens. {about_differences(len(beside))}",
        f"Seconds are from an answer's first step to its last, "
        f"{experiment.llm.config.max_num_seqs} answers under way at once. The paper's "
        "DiSE-flexible has K = 4, D = 20, M_max = 10.",
        picture("length", "share solved against forward passes"),
    ]
    write(output, "Length", experiment, figures, text)


def _longest(experiment: Lengths) -> dict[str, str]:
    """Return, by controller, the fixed length of its base and the most iterations; only those that
    were run.
    """
    names = {
        name: f"fixed, {params.max_tokens + experiment.max_iterations}"
        for name, params in experiment.variants.items()
        if params.length != "fixed"
    }
    return {name: other for name, other in names.items() if other in experiment.variants}


def _lengths_concluded(figures: Fields, beside: Mapping[str, str]) -> Iterator[str]:
    """Yield the conclusion on the controllers beside each fixed length."""
    for other in dict.fromkeys(beside.values()):
        its = figures[other]
        told = f"`{other}` ({percentage(its['accuracy'])}, NFE {its['nfe']:.1f})"
        differences = {
            f"{name}, NFE {figures[name]['nfe']:.1f}": figures[name]["difference"]
            for name in beside
            if beside[name] == other
        }
        yield conclusion("Questions solved", told, differences, digits=1)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items() if name != "None") or "-"
