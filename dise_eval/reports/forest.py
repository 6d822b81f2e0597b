"""The plot of an experiment's figures: a line for each estimate and interval."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dise_app.files.texts import replacing
from dise_eval.reports.paper import PAPER
from dise_eval.reports.table import FigureTable
from dise_eval.statistics.references import is_baseline
from dise_eval.statistics.resampling import Estimate

mpl.use("agg")

LABEL = 52
"""The most characters in a line of a row's name."""

OURS, BASELINE, GUIDE = "#0072b2", "#d55e00", "#8c8c8c"
"""Colours that colour-blind readers tell apart (Okabe and Ito), and a guide's."""


@dataclass(frozen=True, slots=True)
class Forest:
    """A plot of one column of a table. name: of its file; title: of the column in words.
    guide: what to compare with, and its name.
    """

    name: str
    table: FigureTable
    column: str
    title: str
    guide: float | None = None
    guide_name: str = "chance"


def draw(plot: Forest, folder: Path) -> None:
    """Draw a dot with its 95 % interval for each row's estimate, and a hollow diamond for
    the paper's figure.
    """
    table = plot.table
    figure = Figure(figsize=(7.5, 0.42 * len(table.rows) + 2), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(table.rows):
        cell, paper = row[plot.column], row.get(PAPER)
        if isinstance(cell, Estimate) and cell.value == cell.value:
            is_base = is_baseline(str(row[table.index[-1]]))
            colour, kind = (BASELINE, "of a baseline") if is_base else (OURS, "estimate")
            axes.plot([cell.low, cell.high], [place, place], color=colour, linewidth=2, alpha=0.6)
            axes.plot(cell.value, place, "o", color=colour, label=kind)
            at = (cell.value, place)
            axes.annotate(
                f"{cell.value:.3f}", at, (0, 6), textcoords="offset points", ha="center", fontsize=8
            )
        if isinstance(paper, float):
            label = "the paper"
            axes.plot(paper, place, "D", markerfacecolor="none", color="black", label=label)
    if plot.guide is not None:
        label = plot.guide_name
        axes.axvline(plot.guide, color=GUIDE, linestyle=":", linewidth=1, zorder=0, label=label)
    names = [textwrap.fill(table.name_of(row), LABEL) for row in table.rows]
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(table.rows) - 0.4, -0.7)
    axes.set_xlabel(f"{plot.title}, with its 95 % interval")
    axes.set_ylabel(
        ", ".join(name for name in table.index if len({r[name] for r in table.rows}) > 1)
    )
    _name_marks(figure, axes)
    axes.grid(axis="x", alpha=0.3)
    save(figure, folder / f"{plot.name}.png")


def _name_marks(figure: Figure, axes: Axes) -> None:
    """Write below the plot what each kind of mark is, once."""
    marks, names = axes.get_legend_handles_labels()
    once = dict(zip(names, marks, strict=True))
    if once:
        figure.legend(
            [*once.values()],
            [*once],
            loc="outside lower center",
            ncols=len(once),
            fontsize=8,
            frameon=False,
        )


def save(figure: Figure, path: Path) -> None:
    """Write a plot as PNG. Raises DiseError if the file cannot be written."""
    with replacing(path) as part:
        figure.savefig(part, dpi=150, format="png")
