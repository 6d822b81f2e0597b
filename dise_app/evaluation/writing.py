"""Writes results: results.json, report.md with its tables, and plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from dise_app.evaluation.experiments import Experiment
from dise_app.evaluation.questions import PUBLIC_PROBLEMS
from dise_app.evaluation.run import command_line, key_of
from dise_app.texts import replacing, write_json, write_text
from dise_core.records import Fields, Record

PUBLIC = {"countdown_cd3_test.jsonl sha256 9916f614621e26fb": PUBLIC_PROBLEMS}
"""Where the files of public data sets are found, by a result's source."""


def write(
    output: Path,
    title: str,
    experiment: Experiment,
    figures: Fields,
    text: Sequence[str],
    compared: Fields | None = None,
) -> None:
    """Write results.json, the figures with what they depend on, and report.md: the title, a line on
    model and data, the command, and the paragraphs of `text`. compared: contenders beside each
    other, for results.json. Raises DiseError if a file cannot be written.
    """
    key, count, command = key_of(experiment), len(experiment.questions.items), command_line()
    record: Record = {**key, "command": command, "num_questions": count, "figures": figures}
    if compared is not None:
        record["compared"] = compared
    write_json(output / "results.json", record)
    link = f"; [its file]({PUBLIC[key['source']]})" if key["source"] in PUBLIC else ""
    facts = (
        f"Model `{key['model']}`, data set `{key['dataset']}` ({key['source']}{link}), prompts "
        f"`{key['prompts']}`, n = {count} questions."
    )
    made = [f"```\n{command}\n```"] if command else []
    page = "\n\n".join([f"# {title}", facts, *made, *filter(None, text)]) + "\n"
    write_text(output / "report.md", page)


def save(figure: Figure, path: Path) -> None:
    """Write a plot as PNG to `path`, and as SVG beside it. Raises DiseError if a file cannot be
    written.
    """
    with mpl.rc_context({"svg.hashsalt": "dise"}):
        with replacing(path) as part:
            figure.savefig(part, dpi=200)
        figure.set_layout_engine("none")  # What is laid out stays so, which saves half of the time.
        with replacing(path.with_suffix(".svg")) as part:
            figure.savefig(part, metadata={"Date": None})


def picture(name: str, about: str) -> str:
    """Return a plot in Markdown, which leads to the SVG."""
    return f"[![{about}]({name}.png)]({name}.svg)"


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


def signed(value: float | None, digits: int = 3) -> str:
    """Return a number with its sign; "-" for None."""
    return "-" if value is None else f"{value:+.{digits}f}"
