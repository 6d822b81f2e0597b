"""The picture of a calibration: reliability, risk, coverage and threshold."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dise_eval.calibration.fitting import Labels
from dise_eval.calibration.guarantee import RankTrial
from dise_eval.calibration.searching import Search
from dise_eval.reports.forest import BASELINE, GUIDE, OURS, save
from dise_eval.statistics.metrics import Scores, ece, equal_mass_bins, risk_coverage
from dise_eval.statistics.resampling import binomial_interval


class Bin(NamedTuple):
    """The answers in one bin. low, high: the 95 % interval of the share of right ones."""

    mean: float
    share: float
    low: float
    high: float


def bins(probabilities: Scores, labels: Labels) -> list[Bin]:
    """Return the bins of equal mass that hold answers, by their probability, float64 [n].

    The intervals are Clopper and Pearson's, where all answers to one question count as
    one: they depend on each other, so that more of them need not tell more.
    """
    numbers = equal_mass_bins(probabilities)
    members = [numbers == number for number in np.unique(numbers)]
    return [_bin(probabilities[here], labels.of(here)) for here in members]


def _bin(probabilities: Scores, labels: Labels) -> Bin:
    share, trials = float(labels.is_right.mean()), labels.num_questions
    interval = binomial_interval(share * trials, (1 - share) * trials)
    return Bin(float(probabilities.mean()), share, *interval)


def picture(probabilities: Scores, labels: Labels, search: Search | None, path: Path) -> None:
    """Draw the reliability of held-out probabilities, [n], and risk and coverage with the
    thresholds that were tried.
    """
    figure = Figure(figsize=(10, 5.2), layout="constrained")
    bins_axes, risk_axes = figure.subplots(1, 2)
    _draw_bins(bins_axes, probabilities, labels)
    risks = risk_coverage(labels.scores, labels.is_right)
    label = "wrong, of the surest labels"
    risk_axes.plot(np.arange(1, len(risks) + 1) / len(risks), risks, color=OURS, label=label)
    highest = float(risks.max())
    if search is not None and search.best is not None:
        _draw_search(risk_axes, search, search.best)
        highest = max(highest, 2 * search.promise.max_risk)
    risk_axes.set(xlabel="share of answers kept, the surest first", ylabel="share of them wrong")
    risk_axes.set(xlim=(0, 1), ylim=(0, min(1.0, 1.1 * highest) or 1.0), title="risk and coverage")
    for axes in (bins_axes, risk_axes):
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False)
    save(figure, path)


def _draw_search(axes: Axes, search: Search, best: RankTrial) -> None:
    """Draw the promised risk, the threshold, and how many wrong answers each try leaves
    possible: the threshold is where that is last at most the promised risk.
    """
    promise, total = search.promise, search.ranks.num_labels
    promised = f"promised: at most {promise.max_risk:.1%}"
    axes.axhline(promise.max_risk, color=BASELINE, linestyle="--", linewidth=1, label=promised)
    coverage = best.num_kept / total
    score = search.ranks.thresholds[best.rank - 1]
    threshold = f"threshold: score {score:.4g}, keeps {coverage:.1%}"
    axes.axvline(coverage, color=BASELINE, linewidth=1, label=threshold)
    for passes, marker, verdict in ((True, "^", "passes"), (False, "x", "fails")):
        tried = [trial for trial in search.trials if trial.passes is passes]
        shares = [trial.num_kept / total for trial in tried]
        bounds = [trial.bound for trial in tried]
        name = f"most that may be wrong, where tried: {verdict}"
        if tried:
            axes.plot(shares, bounds, marker, color="black", markersize=5, label=name)


def _draw_bins(axes: Axes, probabilities: Scores, labels: Labels) -> None:
    """Draw the reliability diagram: the share of right answers over the mean
    probability of each bin, with the intervals as a band, and at the bottom how many
    answers have which probability.
    """
    means, shares, lows, highs = zip(*bins(probabilities, labels), strict=True)
    calibrated = "perfectly calibrated"
    axes.plot([0, 1], [0, 1], color=GUIDE, linestyle=":", linewidth=1, label=calibrated)
    band = "its 95 % interval"
    axes.fill_between(means, lows, highs, color=OURS, alpha=0.2, linewidth=0, label=band)
    tenths = "share right, a tenth of the answers each"
    axes.plot(means, shares, "o-", color=OURS, markersize=4, linewidth=1.2, label=tenths)
    counts, edges = np.histogram(probabilities, 40, (0, 1))
    heights = 0.15 * counts / counts.max()
    many = "how many answers have which probability"
    axes.stairs(heights, edges, fill=True, color=GUIDE, alpha=0.6, zorder=0, label=many)
    axes.set(xlim=(-0.02, 1.02), ylim=(0, 1.02), title="questions left out of the fit")
    axes.set(xlabel="stated probability of being right", ylabel="share that is right")
    error = f"ECE {ece(probabilities, labels.is_right):.3f}"
    axes.text(0.03, 0.95, error, transform=axes.transAxes, fontsize=8, va="top")
