"""What revising answers gains, and at what cost: the experiment, its figures and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dise_app.evaluation import plots
from dise_app.evaluation.experiments import Lengths, Trial, what_fits
from dise_app.evaluation.results import Figures, share
from dise_app.evaluation.writing import number, table, with_interval, write
from dise_core import RequestOutput
from dise_core.records import Record

AS_WRITTEN = "as written"
"""The group of the variants without a reviser, one answer a question, of the length asked for."""


@dataclass(frozen=True)
class Revisions(Lengths):
    """One answer to each question by each variant: with and without a reviser, and by what else
    might be done with the passes. A variant is named "GROUP, RATE a step".
    """

    kind = "revision"
    is_timed = False

    def remedy(self, item: Trial) -> str:
        return what_fits("--max-tokens", self.room(item.question))

    def record(self, item: Trial, answer: RequestOutput) -> Record:
        """Return what is recorded of an answer, with whether it was revised; None if there was no
        reviser.
        """
        is_revised = any(revision.is_accepted for revision in answer.outputs[0].revisions)
        has_reviser = self.variants[item.variant].reviser is not None
        return {**super().record(item, answer), "is_revised": is_revised if has_reviser else None}


def group_of(variant: str) -> str:
    """Return the variant's name without its rate."""
    return variant.rpartition(", ")[0] or variant


def unrevised(variant: str) -> str:
    """Return the name of the variant whose answers this one revises."""
    group = group_of(variant)
    return (group.rpartition(" + ")[0] or AS_WRITTEN) + variant.removeprefix(group)


def figures_of(experiment: Revisions, records: Sequence[Record]) -> Figures:
    """Return, by variant, the share solved and the mean NFE. For one with a reviser also the share
    of answers that it changed, how many that were wrong came right and the reverse, and the best
    of the other variants, and of best-of-N, that take no more passes.
    """
    by_name = {name: _of(records, name) for name in experiment.variants}
    figures: Figures = {name: _solved(each) for name, each in by_name.items()}
    revised = [name for name, params in experiment.variants.items() if params.reviser is not None]
    others = {name: row for name, row in figures.items() if name not in revised}
    for name in revised:
        each, before = by_name[name], by_name[unrevised(name)]
        is_right, was_right = (
            np.array([record["is_correct"] for record in those]) for those in (each, before)
        )
        drawn = {other: row for other, row in others.items() if other.startswith("best of ")}
        figures[name] |= {
            "revised": float(np.mean([record["is_revised"] for record in each])),
            "mended": int((is_right & ~was_right).sum()),
            "spoiled": int((was_right & ~is_right).sum()),
            "best_other": _best_within(others, figures[name]["nfe"]),
            "best_of_n": _best_within(drawn, figures[name]["nfe"]),
        }
    return figures


def report(experiment: Revisions, records: Sequence[Record], output: Path) -> None:
    """Write results.json, report.md and a plot of what each variant solves and costs."""
    figures = figures_of(experiment, records)
    plots.frontier(figures, group_of, "revision", output / "revision.png")
    head = (
        "variant | solved | NFE | changed | mended | spoiled | others at no more NFE | "
        "best-of-N at no more NFE"
    )
    text = [
        table(head, [_row(name, row, figures) for name, row in figures.items()]),
        "NFE is the mean a question, of all that a variant reads and writes. Changed: the share "
        "of answers that the reviser changed; mended: wrong ones that came right, spoiled: the "
        "reverse, beside the same answers without it. The last two columns name the best variant "
        "without the reviser, and the best best-of-N, among those that take no more passes.",
        "![revision](revision.png)",
    ]
    write(output, "Revision", experiment, figures, text)


def _of(records: Sequence[Record], variant: str) -> list[Record]:
    return [record for record in records if record["variant"] == variant]


def _solved(records: Sequence[Record]) -> Figures:
    is_right = np.array([record["is_correct"] for record in records], float)
    return {"accuracy": share(is_right), "nfe": float(np.mean([r["nfe"] for r in records]))}


def _best_within(rows: Figures, nfe: float) -> str | None:
    """Return the variant that solves most with at most so many passes; None if there is none."""
    within = [name for name, row in rows.items() if row["nfe"] <= nfe]
    return max(within, key=lambda name: float(rows[name]["accuracy"]["value"]), default=None)


def _row(name: str, row: Figures, figures: Figures) -> tuple[str, ...]:
    def named(other: str | None) -> str:
        return "-" if other is None else f"{number(figures[other]['accuracy']['value'])} ({other})"

    if "revised" not in row:
        return (name, with_interval(row["accuracy"]), f"{row['nfe']:.1f}", *"-----")
    counts = (f"{row['revised']:.1%}", str(row["mended"]), str(row["spoiled"]))
    compared = (named(row["best_other"]), named(row["best_of_n"]))
    return (name, with_interval(row["accuracy"]), f"{row['nfe']:.1f}", *counts, *compared)
