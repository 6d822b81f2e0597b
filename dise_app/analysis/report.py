"""Writes report.md, results.json and the plots of each analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dise_app.analysis.probes import Coherence, Distances, Ranks
from dise_app.evaluation.comparison import about_differences, beside_chance, conclusion, percentage
from dise_app.evaluation.experiments import Sampled
from dise_app.evaluation.metrics import Scores, auroc, auroc_per_question, best_of
from dise_app.evaluation.plots import GUIDE, OURS, PALETTE, forest, histograms
from dise_app.evaluation.results import compared, share, table_of, uncertainty
from dise_app.evaluation.uncertainty import base_rate
from dise_app.evaluation.writing import number, picture, save, table, with_interval, write
from dise_core.records import Record

PAIRS = {
    "true-mask": "true token\nand mask",
    "random-mask": "random token\nand mask",
    "true-random": "true token and\nrandom token",
}
"""The pairs of inputs whose predictions are compared, in words."""

DEFAULT = "dise:last-10"
"""DiSE with the selector that it has by default."""


def ranks(experiment: Ranks, records: Sequence[Record], output: Path) -> None:
    """Write how high the true token ranks where the input is a random one; in the paper, for
    LLaDA-8B, in the top 5 in 88.85 % of trials.
    """
    each = [np.array(record["ranks"]) for record in records if record["ranks"]]
    values = np.concatenate(each)
    figures: Record = {
        "num_trials": len(values),
        **{
            name: float((values < first).mean())
            for name, first in (("first", 1), ("top_5", 5), ("top_10", 10))
        },
        "median": float(np.median(values)),
    }
    _draw_ranks(values, output / "ranks.png")
    rows = [
        (name.replace("_", " "), f"{figures[name]:.4f}", {"top_5": "0.8885"}.get(name, "-"))
        for name in ("first", "top_5", "top_10")
    ]
    in_top_5 = share(np.array([(its < 5).mean() for its in each]))
    text = [
        f"{len(values):,} trials in {len(each)} texts. **The true token is among the 5 likeliest "
        f"in {percentage(in_top_5)} of the trials of a text**, with a random token in its place; "
        f"five tokens at random of {experiment.llm.predictor.info.vocab_size:,} would hold it in "
        f"{5 / experiment.llm.predictor.info.vocab_size:.3%}.",
        table("the true token is | share | the paper", rows),
        picture("ranks", "ranks of the true token"),
    ]
    write(
        output,
        "Rank of the true token where the input holds a random one",
        experiment,
        figures,
        text,
    )


def _draw_ranks(values: npt.NDArray[np.int64], path: Path) -> None:
    """Draw how many trials have which rank, on a logarithmic axis, and their cumulative share."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    histogram, cumulative = figure.subplots(1, 2)
    largest = int(min(values.max(), 50))
    histogram.hist(np.minimum(values, largest), np.arange(largest + 2) - 0.5, color=OURS, log=True)
    rank = "rank of the true token (0: the likeliest)"
    last = f"; {largest} and above together" if values.max() > largest else ""
    histogram.set(xlabel=rank, ylabel="trials", title=f"how often each rank{last}")
    shares = [(values <= rank).mean() for rank in range(largest + 1)]
    cumulative.step(range(largest + 1), shares, where="post", color=OURS)
    cumulative.set(xlabel=rank, ylabel="share of trials", title="at most that rank", ylim=(0, 1.02))
    cumulative.grid(alpha=0.3)
    save(figure, path)


def distances(experiment: Distances, records: Sequence[Record], output: Path) -> None:
    """Write how far apart the predictions for a true, a masked and a random token are."""
    trials = [trial for record in records for trial in record["distances"]]
    figures: Record = {"num_trials": len(trials)}
    figure = Figure(figsize=(9, 4), layout="constrained")
    for axes, (kind, title) in zip(
        figure.subplots(1, 2),
        (
            ("js", "Jensen-Shannon divergence, nats"),
            ("wasserstein", "Wasserstein distance, share of the vocabulary"),
        ),
        strict=True,
    ):
        values = {pair: np.array([trial[kind][pair] for trial in trials]) for pair in PAIRS}
        figures[kind] = {
            pair: {"mean": float(v.mean()), "median": float(np.median(v))}
            for pair, v in values.items()
        }
        _boxes(axes, values)
        axes.set_title(title, loc="left", fontsize=10)
    save(figure, output / "distances.png")
    _examples(trials[:4], output / "examples.png")
    rows = [
        (
            pair,
            *(
                f"{figures[kind][pair][which]:.4f}"
                for kind in ("js", "wasserstein")
                for which in ("mean", "median")
            ),
        )
        for pair in PAIRS
    ]
    head = "inputs | JS mean | JS median | Wasserstein mean | Wasserstein median"
    text = [
        f"{len(trials):,} positions. Wasserstein distance over token ids, as a share of the "
        "vocabulary.",
        conclusion("Mean JS divergence, nats", "true-mask", _from_masked(records)),
        table(head, rows),
        picture("distances", "distances between predictions"),
        picture("examples", "the likeliest tokens at a few positions"),
    ]
    write(
        output,
        "Predictions at a position that holds the true token, the mask, or a random token",
        experiment,
        figures,
        text,
    )


def _boxes(axes: Axes, values: Mapping[str, Scores]) -> None:
    """Draw a box for each pair of inputs on a logarithmic axis, whiskers from 5 % to 95 %."""
    least = np.finfo(np.float32).eps
    drawn = [np.maximum(each, least) for each in values.values()]
    axes.boxplot(drawn, whis=(5, 95), showfliers=False, medianprops={"color": OURS})
    axes.set_xticks(range(1, len(values) + 1), [PAIRS[pair] for pair in values])
    axes.set_yscale("log")
    axes.grid(axis="y", alpha=0.3)


def _from_masked(records: Sequence[Record]) -> dict[str, Record]:
    """Return by how much a text's mean divergence with a random token in the input exceeds that
    between the true token and the mask.
    """
    means = {
        pair: np.array(
            [
                np.mean([trial["js"][pair] for trial in record["distances"]])
                for record in records
                if record["distances"]
            ]
        )
        for pair in PAIRS
    }
    first, *others = PAIRS
    return {pair: share(means[pair] - means[first]) for pair in others}


def coherence(experiment: Coherence, records: Sequence[Record], output: Path) -> None:
    """Write how much DiSE falls when tokens are replaced by random ones."""
    scored = [record["scores"] for record in records if record["scores"]]
    differences = {
        name: np.array([scores[name]["natural"] - scores[name]["randomized"] for scores in scored])
        for name in scored[0]
    }
    figures = {
        name: {
            "mean_difference": float(v.mean()),
            "share_above_0": float((v > 0).mean()),
            "num_texts": len(v),
        }
        for name, v in differences.items()
    }
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    colours = (*PALETTE["ours"], *PALETTE["others"])
    for (name, values), colour in zip(differences.items(), colours, strict=False):
        axes.stairs(*np.histogram(values, 40), color=colour, linewidth=2, label=name)
    axes.axvline(0, color=GUIDE, linestyle=":")
    axes.set(
        xlabel="DiSE of the natural text minus DiSE of the randomized one, nats", ylabel="texts"
    )
    axes.legend()
    save(figure, output / "coherence.png")
    rows = [
        (n, f"{r['mean_difference']:.3f}", f"{r['share_above_0']:.3f}", str(r["num_texts"]))
        for n, r in figures.items()
    ]
    head = "tokens replaced and scored | mean difference | natural scores higher | texts"
    write(
        output,
        "Natural against randomized text",
        experiment,
        figures,
        [
            *(_coherent(name, values) for name, values in differences.items()),
            table(head, rows),
            picture("coherence", "how much natural text scores above randomized text"),
        ],
    )


def _coherent(name: str, values: Scores) -> str:
    """Return the conclusion on one kind of replaced tokens; the interval is exact."""
    from scipy.stats import binomtest

    higher = int((values > 0).sum())
    ends = binomtest(higher, len(values)).proportion_ci()
    its = {"value": higher / len(values), "low": ends.low, "high": ends.high}
    above = "more often than by chance" if ends.low > 0.5 else "not shown to be more than by chance"
    return (
        f"**{name}: natural text scores above randomized text in {percentage(its)} of the texts**, "
        f"{above} (50 %)."
    )


def correctness(experiment: Sampled, records: Sequence[Record], output: Path) -> None:
    """Write the scores of right and wrong answers."""
    labels = experiment.contenders.labels
    tables = {label: table_of(records, label) for label in labels}
    found = uncertainty(records, labels)
    figures = {
        label: {"right": row["mean_score_right"], "wrong": row["mean_score_wrong"]}
        for label, row in found.items()
    }
    histograms(tables, output / "correctness.png")
    rows = [
        (
            label,
            *(number(row[kind], 4) for kind in ("right", "wrong")),
            with_interval(found[label]["auroc_pooled"]),
        )
        for label, row in figures.items()
    ]
    above = {label: beside_chance(row["auroc_pooled"]) for label, row in found.items()}
    text = [
        base_rate(records),
        conclusion("ROC-AUC over all answers", "chance (0.5)", above),
        table("scorer | mean of right answers | mean of wrong answers | ROC-AUC", rows),
        picture("correctness", "scores of right and of wrong answers"),
    ]
    write(output, "Scores of right and wrong answers", experiment, figures, text)


def selectors(experiment: Sampled, records: Sequence[Record], output: Path) -> None:
    """Write how well DiSE tells right answers from wrong ones with each selector."""
    figures = {}
    labels = experiment.contenders.labels
    for label in labels:
        scores, is_right = table_of(records, label)
        figures[label.removeprefix("dise:")] = {
            "auroc_pooled": _finite(auroc(scores, is_right)),
            "auroc_per_question": _finite(auroc_per_question(scores, is_right)),
            "best_of_n": best_of(scores, is_right),
        }
    pooled = {label: row["auroc_pooled"] for label, row in uncertainty(records, labels).items()}
    axis = "ROC-AUC with its 95 % interval (dotted: chance)"
    forest(pooled, "which positions to score", axis, output / "selectors.png", guide=0.5)
    default = next((label for label in labels if label == DEFAULT), labels[0])
    beside = compared(records, labels, [default])
    differences = {label: each["auroc_pooled"] for label, each in beside[default].items()}
    rows = [(name, *(number(value) for value in row.values())) for name, row in figures.items()]
    head = f"selector | ROC-AUC pooled | per question | best of {experiment.params.n}"
    text = [
        base_rate(records),
        conclusion("ROC-AUC over all answers", f"`{default}`, NFE 1.0", differences),
        table(head, rows),
        about_differences(len(differences)),
        picture("selectors", "ROC-AUC of DiSE by selector"),
    ]
    write(output, "Which positions to score", experiment, figures, text, beside)


def _examples(trials: Sequence[Record], path: Path) -> None:
    """Draw the likeliest tokens at a few positions for each of the three inputs."""
    figure = Figure(figsize=(10, 2.4 * max(1, len(trials))), layout="constrained")
    grid = figure.subplots(max(1, len(trials)), 3, squeeze=False)
    for line, trial in zip(grid, trials, strict=False):
        for axes, (name, top) in zip(line, trial["top"].items(), strict=True):
            axes.bar(range(len(top)), [probability for _, probability in top], color=OURS)
            axes.set_xticks(range(len(top)), [token for token, _ in top], fontsize=7, rotation=30)
            held = {"true": trial["token"], "mask": "the mask", "random": trial["random_token"]}[
                name
            ]
            axes.set_title(f"input {held!r}, truth {trial['token']!r}", fontsize=8)
            axes.set_ylim(0, 1)
    save(figure, path)


def _finite(value: float) -> float | None:
    return None if np.isnan(value) else value
