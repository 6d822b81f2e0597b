"""Plots of results. Colours are those of Okabe and Ito, which colour-blind readers can tell apart:
blues and green are ours, reds and oranges the baselines, greys all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogFormatter, NullFormatter, ScalarFormatter

from dise_app.evaluation import metrics, resampling
from dise_app.evaluation.metrics import Rights, Scores
from dise_app.evaluation.words import Family, family_of, in_words
from dise_app.evaluation.writing import save
from dise_core.records import Fields

mpl.use("agg")

Tables = Mapping[str, tuple[Scores, Rights]]
"""The scores of each contender, and which answers are right; by its name."""

PALETTE: Mapping[Family, tuple[str, ...]] = {
    "ours": ("#0072b2", "#56b4e9", "#009e73"),
    "baselines": ("#d55e00", "#e69f00", "#cc79a7"),
    "others": ("#4d4d4d", "#8c8c8c", "#b3b3b3"),
}
OURS, RIGHT, WRONG = PALETTE["ours"][0], "#009e73", "#d55e00"
GUIDE = "#8c8c8c"
"""The colour of lines to compare with: chance, the base rate, an oracle."""

PLACES = np.linspace(0, 1, 201)
"""Where curves are drawn; picture files stay small."""

MARKS, DASHES = ("o", "s", "^", "D", "v", "P", "X", "*"), ("-", "--", ":", "-.")


@dataclass(frozen=True, slots=True)
class Style:
    """How one contender is drawn."""

    colour: str
    mark: str
    dash: str


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Return a style for each name: the colours of its family in turn, a mark and a dash of its
    own.
    """
    seen: dict[Family, int] = {}
    found: dict[str, Style] = {}
    for name in names:
        family = family_of(name)
        place = seen.setdefault(family, 0)
        seen[family] += 1
        colours = PALETTE[family]
        dash = DASHES[place // len(colours) % len(DASHES)]
        found[name] = Style(colours[place % len(colours)], MARKS[len(found) % len(MARKS)], dash)
    return found


def forest(
    rows: Mapping[str, Fields],
    title: str,
    axis: str,
    path: Path,
    reference: Mapping[str, float] | None = None,
    guide: float | None = None,
) -> None:
    """Draw a dot with its interval for each row, and a hollow diamond for the paper's figure.
    guide: where to draw a line to compare with, such as chance.
    """
    names = list(rows)
    figure = Figure(figsize=(7.5, 0.42 * len(names) + 1.5), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(names):
        if rows[name]["value"] is not None:
            _dot(axes, rows[name], place, PALETTE[family_of(name)][0])
        if reference and name in reference:
            axes.plot(reference[name], place, "D", markerfacecolor="none", color="black")
    if guide is not None:
        axes.axvline(guide, color=GUIDE, linestyle=":", linewidth=1, zorder=0)
    axes.set_yticks(range(len(names)), [in_words(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.7)
    axes.set_xlabel(axis + (" (hollow diamond: the paper, LLaDA-8B)" if reference else ""))
    axes.set_title(fill(title, 40), loc="left")
    axes.grid(axis="x", alpha=0.3)
    _name_families(figure, names)
    save(figure, path)


def _dot(axes: Axes, row: Fields, place: int, colour: str) -> None:
    axes.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=2, alpha=0.6)
    axes.plot(row["value"], place, "o", color=colour)
    _name(axes, f"{row['value']:.3f}", (row["value"], place), 6)


def _name(axes: Axes, text: str, place: tuple[float, float], above: int) -> None:
    """Write a text so many points above a place of the plot."""
    at = "offset points"
    axes.annotate(text, place, xytext=(0, above), textcoords=at, ha="center", fontsize=8)


def _name_families(figure: Figure, names: Sequence[str]) -> None:
    """Add a legend of the families among the names, if there are several."""
    families = [family for family in PALETTE if family in set(map(family_of, names))]
    if len(families) > 1:
        dots = [figure.axes[0].plot([], [], "o", color=PALETTE[each][0])[0] for each in families]
        figure.legend(dots, families, loc="outside upper right", ncols=3, frameon=False, fontsize=8)


def rocs(tables: Tables, path: Path) -> None:
    """Draw the ROC curve of each scorer with its 95 % band, in a square of its own before the
    curves of the others.
    """
    lines = {name: _caught(*table) for name, table in tables.items()}

    def draw(axes: Axes, name: str, colour: str) -> None:
        scores, is_right = tables[name]
        for other in [PLACES, *lines.values()]:
            axes.plot(PLACES[::5], other[::5], color=GUIDE, linewidth=0.5, alpha=0.6)
        if metrics.is_of_both_kinds(is_right):
            band = resampling.band(_caught, scores, is_right)
            axes.fill_between(PLACES, *band, color=colour, alpha=0.25, linewidth=0)
            axes.plot(PLACES, lines[name], color=colour, linewidth=1.6)
            area = f"area {metrics.auroc(scores, is_right):.3f}"
            axes.text(0.97, 0.04, area, transform=axes.transAxes, fontsize=8, ha="right")
        axes.set_aspect("equal")
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))

    panels(list(tables), draw, ("right answers rejected", "wrong answers caught"), path)


def _caught(scores: Scores, is_right: Rights) -> Scores:
    """Return the share of wrong answers that is caught where PLACES of the right are rejected."""
    caught: Scores = np.interp(PLACES, *metrics.roc(scores, is_right))
    return caught


def risks(tables: Tables, path: Path) -> None:
    """Draw the risk-coverage curve of each scorer with its 95 % band, between that of an oracle and
    the risk of keeping all answers; what few answers risk above 1.6 times that is cut off.
    """

    def draw(axes: Axes, name: str, colour: str) -> None:
        scores, is_right = tables[name]
        band = resampling.band(_risks, scores, is_right)
        axes.fill_between(PLACES[1:], *band, color=colour, alpha=0.25, linewidth=0)
        draw_risk(axes, scores, is_right, colour, name)
        draw_risk(axes, is_right.astype(float), is_right, GUIDE, "an oracle")
        rate = float((~is_right).mean())
        axes.axhline(rate, color=GUIDE, linestyle=":", linewidth=1)
        axes.set(xlim=(0, 1), ylim=(-0.01, min(1, 1.6 * rate or 1)))

    panels(list(tables), draw, ("share of answers kept", "share of them wrong"), path)


def draw_risk(axes: Axes, scores: Scores, is_right: Rights, colour: str, name: str) -> None:
    """Draw a risk-coverage curve."""
    axes.plot(PLACES[1:], _risks(scores, is_right), color=colour, label=name)


def _risks(scores: Scores, is_right: Rights) -> Scores:
    """Return the share of wrong answers among those kept where PLACES[1:] of all are kept."""
    curve = metrics.risk_coverage(scores, is_right)
    kept = np.ceil(PLACES[1:] * len(curve) - 1e-9).astype(np.int64)
    found: Scores = curve[kept - 1]
    return found


def panels(
    names: Sequence[str],
    draw: Callable[[Axes, str, str], None],
    labels: tuple[str, str],
    path: Path,
) -> None:
    """Draw a panel for each name, four in a line, by draw(axes, name, colour), and save the plot.
    labels: what the axes show.
    """
    width = min(4, len(names))
    height = -(-len(names) // width)
    figure = Figure(figsize=(2.5 * width + 0.5, 3.1 * height + 0.4), layout="constrained")
    grid = figure.subplots(height, width, squeeze=False, sharex=True, sharey=True).ravel()
    for axes in grid[len(names) :]:
        axes.set_visible(False)
    for axes, name in zip(grid, names, strict=False):
        draw(axes, name, PALETTE[family_of(name)][0])
        axes.set_title(in_words(name).replace(", ", "\n", 1), fontsize=8.5, loc="left")
        axes.tick_params(labelsize=8, labelbottom=True)
    figure.supxlabel(labels[0], fontsize=10)
    figure.supylabel(labels[1], fontsize=10)
    save(figure, path)


def histograms(tables: Tables, path: Path) -> None:
    """Draw histograms of the scores of right and wrong answers, for each scorer. Scores that are
    never above 0 are drawn by their distance from 0 on a logarithmic axis, the surest on the right.
    """
    figure = Figure(figsize=(7.5, 1.6 * len(tables) + 0.6), layout="constrained")
    lines = np.ravel(figure.subplots(len(tables), 1))
    for axes, (name, (scores, is_right)) in zip(lines, tables.items(), strict=True):
        _histogram(axes, scores, is_right)
        axes.set_title(in_words(name), loc="left", fontsize=10)
        axes.tick_params(labelsize=8)
    figure.supxlabel("score, nats")
    figure.supylabel("share of the right and of the wrong answers")
    if handles := lines[0].get_legend_handles_labels()[0]:
        figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False)
    save(figure, path)


def _histogram(axes: Axes, scores: Scores, is_right: Rights) -> None:
    finite = scores[np.isfinite(scores)]
    below = -finite[finite < 0]
    is_log = len(below) > 0 and finite.max() <= 0
    if is_log:
        bins = np.geomspace(below.min(), max(below.max(), 1.01 * below.min()), 41)
        values = np.clip(-scores, bins[0], bins[-1])
        axes.set_xscale("log")
        axes.invert_xaxis()
        negative = FuncFormatter(lambda value, _: f"-{value:g}")
        is_narrow = bins[-1] < 10 * bins[0]
        axes.xaxis.set_major_formatter(negative)
        axes.xaxis.set_minor_formatter(negative if is_narrow else NullFormatter())
    else:
        # Scores that are all the same still need bins of some width.
        bins = np.linspace(finite.min(), max(finite.max(), finite.min() + 1e-6), 41)
        values = scores
    for kind, chosen, colour in (("right", is_right, RIGHT), ("wrong", ~is_right, WRONG)):
        these = values[chosen & np.isfinite(scores)]
        shares = np.histogram(these, bins)[0] / max(1, len(these))
        axes.stairs(shares, bins, fill=True, alpha=0.35, color=colour, label=kind)
        axes.stairs(shares, bins, color=colour)


def cost(rows: Mapping[str, Fields], group: Callable[[str], str], title: str, path: Path) -> None:
    """Draw accuracy against forward passes: rows are numbered in the plot and named beside it, with
    one style per group.
    """
    figure, axes = _against_passes(title)
    its_style = styles(dict.fromkeys(map(group, rows)))
    for place, (name, row) in enumerate(rows.items(), start=1):
        style, share = its_style[group(name)], row["accuracy"]
        axes.vlines(row["nfe"], share["low"], share["high"], color=style.colour, alpha=0.25)
        at = (row["nfe"], share["value"])
        axes.plot(*at, style.mark, color=style.colour, label=f"{place}  {name}")
        _name(axes, str(place), at, 6 if place % 2 else -13)
    _finish(figure, path)


def frontier(
    rows: Mapping[str, Fields], group: Callable[[str], str], title: str, path: Path
) -> None:
    """Draw accuracy, with its interval, against forward passes: a line for each group."""
    figure, axes = _against_passes(title)
    for name, style in styles(dict.fromkeys(map(group, rows))).items():
        each = sorted((r for n, r in rows.items() if group(n) == name), key=lambda r: r["nfe"])
        values = np.array(
            [[row["accuracy"][end] for end in ("low", "value", "high")] for row in each]
        )
        passes = np.array([row["nfe"] for row in each])
        marked = f"{style.mark}{style.dash}"
        axes.plot(passes, values[:, 1], marked, color=style.colour, label=name)
        axes.vlines(passes, values[:, 0], values[:, 2], color=style.colour, alpha=0.25)
    _finish(figure, path)


def _against_passes(title: str) -> tuple[Figure, Axes]:
    """Return a figure whose axes hold the share solved against forward passes, these on a
    logarithmic axis with plain numbers.
    """
    figure = Figure(figsize=(10, 5.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel="forward passes a question", ylabel="share solved", title=title, xscale="log")
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 1)))
    axes.grid(alpha=0.3)
    return figure, axes


def _finish(figure: Figure, path: Path) -> None:
    figure.legend(loc="outside right center", fontsize=8)
    save(figure, path)
