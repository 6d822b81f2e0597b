"""Writes results: results.json, report.md with its tables, and plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from dise_app.evaluation.experiments import Experiment
from dise_app.evaluation.run import key_of
from dise_app.texts import replacing, write_json, write_text
from dise_core.records import Fields


def write(
    output: Path, title: str, experiment: Experiment, figures: Fields, text: Sequence[str]
) -> None:
    """Write results.json, the figures with what they depend on, and report.md: the title, a line on
    model and data, and the paragraphs of `text`. Raises DiseError if a file cannot be written.
    """
    key, count = key_of(experiment), len(experiment.questions.items)
    write_json(output / "results.json", {**key, "num_questions": count, "figures": figures})
    facts = (
        f"Model `{key['model']}`, data set `{key['dataset']}` ({key['source']}), prompts "
        f"`{key['prompts']}`, n = {count} questions."
    )
    page = "\n\n".join([f"# {title}", facts, *text]) + "\n"
    write_text(output / "report.md", page)


def save(figure: Figure, path: Path) -> None:
    """Write a plot. Raises DiseError if the file cannot be written."""
    with replacing(path) as part:
        figure.savefig(part, dpi=130)


def table(head: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, right-aligned after the first column; head: "column | column"."""
    marks = ["---", *["---:"] * head.count(" | ")]
    return "\n".join(f"| {row} |" for row in (head, *map(" | ".join, (marks, *rows))))


def with_interval(row: Fields) -> str:
    """Return an estimate with its interval as text; "-" for an undefined one."""
    if row["value"] is None:
        return "-"
    return f"{row['value']:.3f} [{number(row['low'])}, {number(row['high'])}]"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number as text; "-" for None."""
    return "-" if value is None else f"{value:.{digits}f}"
