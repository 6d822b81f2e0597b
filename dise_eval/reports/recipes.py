"""What a run by a recipe found, beside the published figure."""

from __future__ import annotations

from collections.abc import Sequence

from dise_eval.experiments.records import WayRecord
from dise_eval.recipes.following import Followed
from dise_eval.reports.page import Report
from dise_eval.reports.table import Cell, FigureTable
from dise_eval.statistics.resampling import Estimate, binomial_interval


def followed(experiment: Followed, records: Sequence[WayRecord]) -> Report:
    """Return the report of our figure with its binomial interval, and of whether the
    published one lies within it.
    """
    published, deviations = experiment.recipe.published, "; ".join(experiment.deviations)
    num_right, count = sum(record["is_correct"] for record in records), len(records)
    low, high = binomial_interval(num_right, count - num_right)
    theirs = published.percent / 100
    is_within = low <= theirs <= high
    row: dict[str, Cell] = {
        "recipe": experiment.ways[0].name,
        "accuracy": Estimate(num_right / count, low, high, count),
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
