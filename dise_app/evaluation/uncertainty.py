"""The report of how well scores tell right answers from wrong ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dise_app.evaluation import metrics, paper, plots, reliability, results
from dise_app.evaluation.comparison import (
    about_differences,
    conclusion,
    disagreements,
    percentage,
    table_of,
)
from dise_app.evaluation.experiments import Sampled
from dise_app.evaluation.words import in_words
from dise_app.evaluation.writing import number, picture, table, with_interval, write
from dise_core.records import Fields, Record


def uncertainty(experiment: Sampled, records: Sequence[Record], output: Path) -> None:
    """Write results.json, report.md and plots of how well each score tells right from wrong."""
    labels = experiment.contenders.labels
    figures = results.uncertainty(records, labels)
    compared = results.compared(records, labels)
    reference = papers_figures(paper.AUROC, experiment, labels)
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
    head = "scorer | NFE | ROC-AUC pooled | per question | the paper | PRR | AURC | ECE | Brier"
    text = [
        base_rate(records),
        *(_concluded(other, each, figures) for other, each in compared.items() if each),
        "ROC-AUC: the chance that a right answer scores above a wrong one, over all answers, and "
        "as the mean within the questions that have both kinds; in brackets 95 % intervals over "
        "questions. NFE: the forward passes that a score would cost alone. PRR: 1 for an oracle, 0 "
        "for chance. ECE and Brier after isotonic calibration on other questions. The paper's "
        "figure is that of LLaDA-8B at the same length.",
        table(head, rows),
        *_beside(compared),
        *_more(figures),
        *_uncertainty_plots(experiment, records, figures, compared, output),
    ]
    write(output, "Uncertainty", experiment, figures, text, compared)


def base_rate(records: Sequence[Record]) -> str:
    """Return the paragraph on how many answers are right."""
    rights = results.rights_of(records)
    return (
        f"Base rate: {percentage(results.base_rate(records))} of the {rights.size:,} answers are "
        f"right; {int(metrics.has_both(rights).sum())} of {len(rights)} questions have both right "
        "and wrong answers."
    )


def _concluded(reference: str, differences: Mapping[str, Fields], figures: Fields) -> str:
    """Return the conclusion on the scorers beside one of them."""
    pooled, prr = (
        {label: each[name] for label, each in differences.items()}
        for name in ("auroc_pooled", "prr")
    )
    its = figures[reference]
    beside = f"`{reference}` ({number(its['auroc_pooled']['value'])}, NFE {its['nfe']:.1f})"
    concluded = conclusion("ROC-AUC over all answers", beside, pooled)
    return " ".join(filter(None, [concluded, disagreements("PRR", pooled, prr)]))


def _beside(compared: Mapping[str, Mapping[str, Fields]]) -> Iterator[str]:
    """Yield the tables of differences, and what they are."""
    for reference, differences in compared.items():
        if differences:
            head = f"minus {reference} | ROC-AUC pooled | per question | PRR | pooled"
            yield about_differences(len(differences))
            yield table(head, list(table_of(differences, results.COMPARED)))


def _uncertainty_plots(
    experiment: Sampled,
    records: Sequence[Record],
    figures: Fields,
    compared: Mapping[str, Mapping[str, Fields]],
    output: Path,
) -> list[str]:
    """Draw the pictures of the report, and return them in Markdown."""
    labels = experiment.contenders.labels
    tables = {label: results.table_of(records, label) for label in labels}
    both = next(iter(figures.values()))["auroc_per_question"]["num_questions"]
    drawn = {}
    for name, title in (
        ("auroc_pooled", "ROC-AUC over all answers"),
        ("auroc_per_question", f"mean ROC-AUC within {both} questions"),
    ):
        reference = (
            papers_figures(paper.AUROC, experiment, labels) if name == "auroc_pooled" else None
        )
        rows = {label: row[name] for label, row in figures.items()}
        axis = "ROC-AUC with its 95 % interval (dotted: chance)"
        plots.forest(rows, title, axis, output / f"{name}.png", reference, guide=0.5)
        drawn[name] = title
    for place, (other, each) in enumerate(compared.items(), start=1):
        if each:
            rows = {label: row["auroc_pooled"] for label, row in each.items()}
            title, path = f"beside {in_words(other)}", output / f"differences_{place}.png"
            plots.forest(rows, title, "difference of ROC-AUC, 95 % interval", path, guide=0)
            drawn[path.stem] = f"differences of ROC-AUC {title}"
    plots.rocs(tables, output / "curves.png")
    plots.risks(tables, output / "risk_coverage.png")
    plots.histograms(tables, output / "scores.png")
    drawn |= {"curves": "ROC curves", "risk_coverage": "risk-coverage curves", "scores": "scores"}
    if len(records) > 1:
        probable = {k: (metrics.calibrated(*table), table[1]) for k, table in tables.items()}
        reliability.diagrams(probable, output / "reliability.png")
        drawn["reliability"] = "reliability diagrams"
    return [picture(name, about) for name, about in drawn.items()]


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


def papers_figures(
    table: paper.Figures, experiment: Sampled, labels: Sequence[str]
) -> dict[str, float]:
    """Return the paper's figures for these scorers, of those that it has."""
    name, max_tokens = experiment.questions.dataset.name, experiment.params.max_tokens
    found = {label: paper.figure_of(table, name, label, max_tokens) for label in labels}
    return {label: figure for label, figure in found.items() if figure is not None}
