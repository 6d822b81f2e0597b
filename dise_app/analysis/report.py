"""Writes report.md, results.json and the plots of each analysis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dise_app.analysis.probes import Coherence, Distances, Ranks
from dise_app.evaluation.experiments import Sampled
from dise_app.evaluation.metrics import auroc, auroc_per_question, best_of
from dise_app.evaluation.plots import COLOURS, forest, histograms
from dise_app.evaluation.results import table_of, uncertainty
from dise_app.evaluation.writing import number, save, table, write
from dise_core.records import Record

PAIRS = ("true-mask", "random-mask", "true-random")


def ranks(experiment: Ranks, records: Sequence[Record], output: Path) -> None:
    """Write how high the true token ranks where the input is a random one; in the paper, for
    LLaDA-8B, in the top 5 in 88.85 % of trials.
    """
    values = np.array([rank for record in records for rank in record["ranks"]])
    figures = {
        "num_trials": len(values),
        "first": float((values == 0).mean()),
        "top_5": float((values < 5).mean()),
        "top_10": float((values < 10).mean()),
        "median": float(np.median(values)),
    }
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    histogram, cumulative = figure.subplots(1, 2)
    largest = int(min(values.max(), 50))
    histogram.hist(np.minimum(values, largest), np.arange(largest + 2) - 0.5, color=COLOURS[0])
    histogram.set(
        xlabel="rank of the true token (0 is the likeliest)", ylabel="trials", title="histogram"
    )
    shares = [(values <= rank).mean() for rank in range(largest + 1)]
    cumulative.step(range(largest + 1), shares, where="post", color=COLOURS[0])
    cumulative.set(
        xlabel="rank", ylabel="share at most so high", title="cumulative", ylim=(0, 1.02)
    )
    cumulative.grid(alpha=0.3)
    save(figure, output / "ranks.png")
    rows = [
        (name.replace("_", " "), f"{figures[name]:.4f}", {"top_5": "0.8885"}.get(name, "-"))
        for name in ("first", "top_5", "top_10")
    ]
    text = [
        f"{len(values)} trials.",
        table("the true token is | share | the paper", rows),
        "![ranks](ranks.png)",
    ]
    write(
        output,
        "Rank of the true token where the input holds a random one",
        experiment,
        figures,
        text,
    )


def distances(experiment: Distances, records: Sequence[Record], output: Path) -> None:
    """Write how far apart the predictions for a true, a masked and a random token are."""
    trials = [trial for record in records for trial in record["distances"]]
    figures: Record = {"num_trials": len(trials)}
    figure = Figure(figsize=(9, 4), layout="constrained")
    for axes, (kind, title) in zip(
        figure.subplots(1, 2),
        (("js", "Jensen-Shannon divergence, nats"), ("wasserstein", "Wasserstein distance")),
        strict=True,
    ):
        values = {pair: np.array([trial[kind][pair] for trial in trials]) for pair in PAIRS}
        figures[kind] = {
            pair: {"mean": float(v.mean()), "median": float(np.median(v))}
            for pair, v in values.items()
        }
        axes.boxplot(list(values.values()), showfliers=False)
        axes.set_xticks(range(1, len(PAIRS) + 1), PAIRS)
        axes.set_title(title, loc="left")
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
        f"{len(trials)} positions. Wasserstein distance over token ids, as a share of the "
        "vocabulary.",
        table(head, rows),
        "![distances](distances.png)",
        "![examples](examples.png)",
    ]
    write(
        output,
        "Predictions at a position that holds the true token, the mask, or a random token",
        experiment,
        figures,
        text,
    )


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
    for index, (name, values) in enumerate(differences.items()):
        axes.hist(values, 40, histtype="step", linewidth=2, color=COLOURS[index], label=name)
    axes.axvline(0, color="#777777", linestyle=":")
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
        [table(head, rows), "![coherence](coherence.png)"],
    )


def correctness(experiment: Sampled, records: Sequence[Record], output: Path) -> None:
    """Write the scores of right and wrong answers."""
    labels = experiment.contenders.labels
    tables = {label: table_of(records, label) for label in labels}
    figures = {
        label: {"right": row["mean_score_right"], "wrong": row["mean_score_wrong"]}
        for label, row in uncertainty(records, labels).items()
    }
    histograms(tables, output / "correctness.png")
    rows = [
        (label, *(number(row[kind], 4) for kind in ("right", "wrong")))
        for label, row in figures.items()
    ]
    text = [
        table("scorer | mean of right answers | mean of wrong answers", rows),
        "![correctness](correctness.png)",
    ]
    write(output, "Scores of right and wrong answers", experiment, figures, text)


def selectors(experiment: Sampled, records: Sequence[Record], output: Path) -> None:
    """Write how well DiSE tells right answers from wrong ones with each selector."""
    figures = {}
    for label in experiment.contenders.labels:
        scores, is_right = table_of(records, label)
        figures[label.removeprefix("dise:")] = {
            "auroc_pooled": _finite(auroc(scores, is_right)),
            "auroc_per_question": _finite(auroc_per_question(scores, is_right)),
            "best_of_n": best_of(scores, is_right),
        }
    pooled = {
        label.removeprefix("dise:"): row["auroc_pooled"]
        for label, row in uncertainty(records, experiment.contenders.labels).items()
    }
    forest(pooled, "DiSE by selector, pooled", "ROC-AUC", output / "selectors.png")
    rows = [(name, *(number(value) for value in row.values())) for name, row in figures.items()]
    head = f"selector | ROC-AUC pooled | per question | best of {experiment.params.n}"
    write(
        output,
        "Which positions to score",
        experiment,
        figures,
        [table(head, rows), "![selectors](selectors.png)"],
    )


def _examples(trials: Sequence[Record], path: Path) -> None:
    """Draw the likeliest tokens at a few positions for each of the three inputs."""
    figure = Figure(figsize=(10, 2.4 * max(1, len(trials))), layout="constrained")
    grid = figure.subplots(max(1, len(trials)), 3, squeeze=False)
    for line, trial in zip(grid, trials, strict=False):
        for axes, (name, top) in zip(line, trial["top"].items(), strict=True):
            axes.bar(range(len(top)), [probability for _, probability in top], color=COLOURS[0])
            axes.set_xticks(range(len(top)), [token for token, _ in top], fontsize=7, rotation=30)
            held = {"true": trial["token"], "mask": "the mask", "random": trial["random_token"]}[
                name
            ]
            axes.set_title(f"input {held!r}, truth {trial['token']!r}", fontsize=8)
            axes.set_ylim(0, 1)
    save(figure, path)


def _finite(value: float) -> float | None:
    return None if np.isnan(value) else value
