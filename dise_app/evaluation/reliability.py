"""Reliability diagrams with confidence bands, and the risk-coverage curve of a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dise_app.evaluation.metrics import NUM_BINS, Rights, Scores, ece, equal_mass_bins
from dise_app.evaluation.plots import GUIDE, OURS, WRONG, Tables, draw_risk, panels
from dise_app.evaluation.writing import save
from dise_core.calibration import Threshold

Questions = npt.NDArray[np.int64]

LABELS = ("probability of being right", "share that is right")
"""What the axes of a reliability diagram show."""


@dataclass(frozen=True, slots=True)
class Bin:
    """The answers in one bin: their mean probability, the share of right ones with its 95 %
    interval, and their number.
    """

    mean: float
    share: float
    low: float
    high: float
    count: int


def bins(
    probabilities: Scores, is_right: Rights, questions: Questions, num_bins: int = NUM_BINS
) -> list[Bin]:
    """Return the bins of equal mass that hold answers, by their probability. Arrays [n].

    The intervals are Clopper and Pearson's, where all answers to one question count as one: they
    depend on each other, so that more of them need not tell more.
    """
    which = equal_mass_bins(probabilities, num_bins)
    chosen = (which == number for number in np.unique(which).tolist())
    return [_bin(probabilities[here], is_right[here], questions[here]) for here in chosen]


def _bin(probabilities: Scores, is_right: Rights, questions: Questions) -> Bin:
    from scipy.stats import beta

    share, trials = float(is_right.mean()), len(np.unique(questions))
    right, wrong = share * trials, (1 - share) * trials
    low = float(beta.ppf(0.025, right, wrong + 1)) if right > 0 else 0.0
    high = float(beta.ppf(0.975, right + 1, wrong)) if wrong > 0 else 1.0
    return Bin(float(probabilities.mean()), share, low, high, len(is_right))


def diagrams(tables: Tables, path: Path) -> None:
    """Draw a reliability diagram for each name's probabilities [Q, A] and outcomes [Q, A]."""

    def draw_one(axes: Axes, name: str, colour: str) -> None:
        probabilities, is_right = tables[name]
        questions = np.repeat(np.arange(len(is_right)), is_right.shape[1])
        draw(axes, probabilities.ravel(), is_right.ravel(), questions, colour)

    panels(list(tables), draw_one, LABELS, path)


def calibrated(
    probabilities: Scores,
    scores: Scores,
    is_right: Rights,
    questions: Questions,
    threshold: Threshold | None,
    path: Path,
) -> None:
    """Draw the reliability diagram of a calibration's held-out probabilities, and the risk-coverage
    curve of its scores with the threshold. Arrays [n].
    """
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw(left, probabilities, is_right, questions, OURS)
    left.set(xlabel=LABELS[0], ylabel=LABELS[1], title="held-out questions")
    draw_risk(right, scores, is_right, OURS, "all labels")
    if threshold is not None:
        right.axhline(threshold.max_risk, color=WRONG, linestyle="--", linewidth=1)
        right.plot(threshold.coverage, threshold.risk, "o", color=WRONG, label="threshold")
    right.set(
        xlabel="share of answers kept", ylabel="share of them wrong", title="risk and coverage"
    )
    right.set_ylim(bottom=0)
    right.legend(fontsize=8)
    save(figure, path)


def draw(
    axes: Axes, probabilities: Scores, is_right: Rights, questions: Questions, colour: str
) -> None:
    """Draw one reliability diagram in a square: the share of right answers over the mean
    probability of bins of equal mass, with the intervals as a band, and at the bottom how many
    answers have which probability.
    """
    each = bins(probabilities, is_right, questions)
    means, shares = [one.mean for one in each], [one.share for one in each]
    lows, highs = [one.low for one in each], [one.high for one in each]
    axes.plot([0, 1], [0, 1], color=GUIDE, linestyle=":", linewidth=1)
    axes.fill_between(means, lows, highs, color=colour, alpha=0.2, linewidth=0)
    axes.vlines(means, lows, highs, color=colour, linewidth=0.8)
    axes.plot(means, shares, "o-", color=colour, markersize=4, linewidth=1.2)
    counts, edges = np.histogram(probabilities, 40, (0, 1))
    axes.stairs(0.15 * counts / counts.max(), edges, fill=True, color=GUIDE, alpha=0.6, zorder=0)
    axes.set(xlim=(-0.02, 1.02), ylim=(0, 1.02), aspect="equal")
    told = f"ECE {ece(probabilities, is_right):.3f}"
    axes.text(0.03, 0.95, told, transform=axes.transAxes, fontsize=8, va="top")
