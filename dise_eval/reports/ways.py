"""What each way to write an answer solves beside another, and what it costs; and what a run
by a recipe found, beside the published figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from dise_eval.experiments.records import WayRecord
from dise_eval.experiments.ways import Compared, Followed
from dise_eval.reports.forest import Forest
from dise_eval.reports.page import Report
from dise_eval.reports.paper import PAPER, paper_figure
from dise_eval.reports.table import Cell, FigureTable
from dise_eval.statistics import resampling
from dise_eval.statistics.metrics import Rights
from dise_eval.statistics.resampling import binomial_interval

SENTENCE = (
    "Each difference is from the way that is named beside it, on the same resamples of the "
    "questions: an interval that holds 0 tells the two not apart. Mended: questions that the other "
    "way gets wrong and this one right; spoiled: the reverse. NFE and tokens are means a question."
)


def compare(experiment: Compared, records: Sequence[WayRecord]) -> Report:
    """Return the report of each way beside the one that it is compared with. For one with
    a reviser also the share of answers that it changed.
    """
    by_name: dict[str, list[WayRecord]] = {way.name: [] for way in experiment.ways}
    for record in records:
        by_name[record["way"]].append(record)
    dataset, rows = experiment.questions.dataset.name, list[dict[str, Cell]]()
    for way in experiment.ways:
        answers = by_name[way.name]
        beside = None if way.beside is None else _rights(by_name[way.beside])
        rows.append(
            {
                "way": way.name,
                **_solved(_rights(answers), beside),
                "beside": way.beside,
                PAPER: paper_figure("length", dataset, way.name),
                "nfe": _mean(record["nfe"] for record in answers),
                "num_tokens": _mean(record["num_tokens"] for record in answers),
                "stopped_by": _counts(record["stopped_by"] for record in answers),
                "revised": _share(record["is_revised"] for record in answers),
            }
        )
    figures = FigureTable(("way",), rows)
    forests = [
        Forest("compare", figures, "accuracy", "share solved"),
        Forest("differences", figures, "difference", "difference in the share solved", 0, "none"),
    ]
    return Report("Comparison", figures, forests, sentence=SENTENCE)


def followed(experiment: Followed, records: Sequence[WayRecord]) -> Report:
    """Return the report of our figure with its binomial interval, and of whether the
    published one lies within it.
    """
    published, deviations = experiment.published, "; ".join(experiment.deviations)
    num_right, count = sum(record["is_correct"] for record in records), len(records)
    low, high = binomial_interval(num_right, count - num_right)
    theirs = published.percent / 100
    is_within = low <= theirs <= high
    row: dict[str, Cell] = {
        "recipe": experiment.ways[0].name,
        "accuracy": resampling.Estimate(num_right / count, low, high, count),
        "published": theirs,
        "within": "not comparable" if deviations else "yes" if is_within else "no",
    }
    says = (
        f"is not comparable, as this run differs from the recipe: {deviations}."
        if deviations
        else f"lies {'within' if is_within else 'outside of'} the interval of ours."
    )
    beyond = " Where the source says nothing or is not followed: "
    unsaid = f"{beyond}{published.unsaid}" if published.unsaid else ""
    sentence = (
        f"The published figure, {published.percent:g} % of {published.questions} "
        f"questions ({published.source}), {says}{unsaid}"
    )
    return Report("By a recipe", FigureTable(("recipe",), [row]), [], sentence=sentence)


def _solved(is_right: Rights, baseline: Rights | None) -> dict[str, Cell]:
    """Return the share that is right and, beside a baseline, the differences."""
    accuracy = resampling.mean(is_right.astype(float))
    if baseline is None:
        return {"accuracy": accuracy, "difference": None, "mended": None, "spoiled": None}
    return {
        "accuracy": accuracy,
        "difference": resampling.mean(is_right.astype(float) - baseline, True),
        "mended": int((is_right & ~baseline).sum()),
        "spoiled": int((baseline & ~is_right).sum()),
    }


def _rights(records: Iterable[WayRecord]) -> Rights:
    return np.array([record["is_correct"] for record in records], np.bool_)


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _share(values: Iterable[bool | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return _mean(defined) if defined else None


def _counts(reasons: Iterable[str | None]) -> str | None:
    counts = Counter(filter(None, reasons))
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or None
