"""Plots of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, ScalarFormatter

from dise_app.evaluation.metrics import Rights, Scores, risk_coverage
from dise_app.evaluation.writing import save
from dise_core.records import Fields

mpl.use("agg")

COLOURS = ("#2c5cc5", "#d1495b", "#2e8b57", "#e0912f", "#7b4fb5", "#3aa6b9", "#8c6d46", "#6b7280")


def forest(
    rows: Mapping[str, Fields],
    title: str,
    axis: str,
    path: Path,
    reference: Mapping[str, float] | None = None,
) -> None:
    """Draw a dot with its interval for each row, and a hollow diamond for the paper's figure."""
    names = list(rows)
    figure = Figure(figsize=(7, 0.45 * len(names) + 1.4), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(names):
        row = rows[name]
        if row["value"] is None:
            continue
        colour = COLOURS[place % len(COLOURS)]
        axes.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=2, alpha=0.6)
        axes.plot(row["value"], place, "o", color=colour)
        axes.annotate(
            f"{row['value']:.3f}",
            (row["value"], place),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
        if reference and name in reference:
            axes.plot(reference[name], place, "D", markerfacecolor="none", color="#444444")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.7)
    axes.set_xlabel(axis + (" (hollow diamond: the paper, LLaDA-8B)" if reference else ""))
    axes.set_title(title, loc="left")
    axes.grid(axis="x", alpha=0.3)
    save(figure, path)


def curves(tables: Mapping[str, tuple[Scores, Rights]], path: Path) -> None:
    """Draw the ROC curve and the risk-coverage curve of each scorer."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    roc, risk = figure.subplots(1, 2)
    for place, (name, (scores, is_right)) in enumerate(tables.items()):
        colour = COLOURS[place % len(COLOURS)]
        order = np.argsort(scores.ravel(), kind="stable")
        wrong = ~is_right.ravel()[order]
        caught = np.concatenate([[0], np.cumsum(wrong) / max(1, wrong.sum())])
        alarms = np.concatenate([[0], np.cumsum(~wrong) / max(1, (~wrong).sum())])
        roc.plot(alarms, caught, color=colour, label=name)
        draw_risk(risk, scores, is_right, colour, name)
    roc.plot([0, 1], [0, 1], color="#999999", linestyle=":", linewidth=1)
    roc.set(xlabel="right answers rejected", ylabel="wrong answers caught", title="ROC")
    risk.set(
        xlabel="share of answers kept", ylabel="share of them wrong", title="risk and coverage"
    )
    risk.legend(fontsize=8)
    save(figure, path)


def draw_risk(axes: Axes, scores: Scores, is_right: Rights, colour: str, name: str) -> None:
    """Draw a risk-coverage curve."""
    curve = risk_coverage(scores, is_right)
    axes.plot(np.arange(1, len(curve) + 1) / len(curve), curve, color=colour, label=name)


def histograms(tables: Mapping[str, tuple[Scores, Rights]], path: Path) -> None:
    """Draw histograms of the scores of right and wrong answers, for each scorer."""
    figure = Figure(figsize=(9, 2.2 * len(tables)), layout="constrained")
    for axes, (name, (scores, is_right)) in zip(
        np.ravel(figure.subplots(len(tables), 1)), tables.items(), strict=True
    ):
        finite = scores[np.isfinite(scores)]
        # Scores that are all the same still need bins of some width.
        low = np.quantile(finite, 0.01)
        bins = np.linspace(low, max(finite.max(), low + 1e-6), 40)
        for kind, chosen, colour in (
            ("right", is_right, COLOURS[2]),
            ("wrong", ~is_right, COLOURS[1]),
        ):
            values = np.clip(scores[chosen & np.isfinite(scores)], bins[0], bins[-1])
            if len(values):
                axes.hist(values, bins, density=True, alpha=0.55, color=colour, label=kind)
        axes.set_title(name, loc="left", fontsize=10)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize=8)
    figure.supxlabel("score, nats")
    figure.supylabel("density of right and of wrong answers")
    save(figure, path)


def cost(rows: Mapping[str, Fields], group: Callable[[str], str], title: str, path: Path) -> None:
    """Draw accuracy against forward passes: rows are numbered in the plot and named beside it, with
    one colour per group.
    """
    figure = Figure(figsize=(11, 5), layout="constrained")
    axes = figure.subplots()
    groups: Sequence[str] = list(dict.fromkeys(map(group, rows)))
    for number, (name, row) in enumerate(rows.items(), start=1):
        colour = COLOURS[groups.index(group(name)) % len(COLOURS)]
        place = (row["nfe"], row["accuracy"]["value"])
        axes.plot(*place, "o", color=colour, label=f"{number}  {name}")
        axes.annotate(
            str(number),
            place,
            xytext=(0, 6 if number % 2 else -13),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.set_ylim(-0.05, 1.05)
    _finish_cost(axes, figure, title, path)


def frontier(
    rows: Mapping[str, Fields], group: Callable[[str], str], title: str, path: Path
) -> None:
    """Draw accuracy, with its interval, against forward passes: a line for each group."""
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.subplots()
    marks = ("o", "s", "^", "D", "v", "P", "X", "*")
    for place, name in enumerate(dict.fromkeys(map(group, rows))):
        each = sorted((r for n, r in rows.items() if group(n) == name), key=lambda r: r["nfe"])
        values = np.array(
            [[row["accuracy"][end] for end in ("low", "value", "high")] for row in each]
        )
        passes = np.array([row["nfe"] for row in each])
        colour, mark = COLOURS[place % len(COLOURS)], marks[place % len(marks)]
        axes.plot(passes, values[:, 1], color=colour, marker=mark, label=name)
        axes.vlines(passes, values[:, 0], values[:, 2], color=colour, alpha=0.25)
    _finish_cost(axes, figure, title, path)


def _finish_cost(axes: Axes, figure: Figure, title: str, path: Path) -> None:
    axes.set(xlabel="forward passes a question", ylabel="share solved", title=title)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 1)))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right center", fontsize=8)
    save(figure, path)
