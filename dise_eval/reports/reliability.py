"""The picture of a calibration: its reliability, and risk and coverage with the threshold."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dise_core.scoring.calibration import Threshold
from dise_eval.calibration.fitting import Labels
from dise_eval.reports.forest import BASELINE, GUIDE, OURS, save
from dise_eval.statistics.metrics import NUM_BINS, Scores, ece, equal_mass_bins, risk_coverage


class Bin(NamedTuple):
    """The answers in one bin. low, high: the 95 % interval of the share of right ones."""

    mean: float
    share: float
    low: float
    high: float
    num_answers: int


def bins(probabilities: Scores, labels: Labels, num_bins: int = NUM_BINS) -> list[Bin]:
    """Return the bins of equal mass that hold answers, by their probability, float64 [n].

    The intervals are Clopper and Pearson's, where all answers to one question count as one: they
    depend on each other, so that more of them need not tell more.
    """
    which = equal_mass_bins(probabilities, num_bins)
    chosen = [which == number for number in np.unique(which)]
    return [_bin(probabilities[here], labels.of(here)) for here in chosen]


def _bin(probabilities: Scores, labels: Labels) -> Bin:
    from scipy.stats import beta

    share, trials = float(labels.is_right.mean()), labels.num_questions
    right, wrong = share * trials, (1 - share) * trials
    low = float(beta.ppf(0.025, right, wrong + 1)) if right > 0 else 0.0
    high = float(beta.ppf(0.975, right + 1, wrong)) if wrong > 0 else 1.0
    return Bin(float(probabilities.mean()), share, low, high, len(labels))


def picture(probabilities: Scores, labels: Labels, threshold: Threshold | None, path: Path) -> None:
    """Draw the reliability of held-out probabilities, [n], and the scores' risk and coverage."""
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_bins(left, probabilities, labels)
    risks = risk_coverage(labels.scores, labels.is_right)
    right.plot(np.arange(1, len(risks) + 1) / len(risks), risks, color=OURS, label="all labels")
    if threshold is not None:
        right.axhline(threshold.max_risk, color=BASELINE, linestyle="--", linewidth=1)
        right.plot(threshold.coverage, threshold.risk, "o", color=BASELINE, label="threshold")
    right.set(
        xlabel="share of answers kept", ylabel="share of them wrong", title="risk and coverage"
    )
    right.set_ylim(bottom=0)
    right.legend(fontsize=8, loc="lower right")
    save(figure, path)


def _draw_bins(axes: Axes, probabilities: Scores, labels: Labels) -> None:
    """Draw the reliability diagram in a square: the share of right answers over the mean
    probability of each bin, with the intervals as a band, and at the bottom how many answers have
    which probability.
    """
    means, shares, lows, highs, _ = zip(*bins(probabilities, labels), strict=True)
    axes.plot([0, 1], [0, 1], color=GUIDE, linestyle=":", linewidth=1)
    axes.fill_between(means, lows, highs, color=OURS, alpha=0.2, linewidth=0)
    axes.plot(means, shares, "o-", color=OURS, markersize=4, linewidth=1.2)
    counts, edges = np.histogram(probabilities, 40, (0, 1))
    axes.stairs(0.15 * counts / counts.max(), edges, fill=True, color=GUIDE, alpha=0.6, zorder=0)
    axes.set(xlim=(-0.02, 1.02), ylim=(0, 1.02), aspect="equal", title="held-out questions")
    axes.set(xlabel="probability of being right", ylabel="share that is right")
    error = f"ECE {ece(probabilities, labels.is_right):.3f}"
    axes.text(0.03, 0.95, error, transform=axes.transAxes, fontsize=8, va="top")
