"""What the analyses show of why regenerating a text tells something about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dise_core import InputError
from dise_core.records import Record
from dise_eval.analysis.probes import PAIRS, Coherence, Distances, Probe, Ranks
from dise_eval.reports.forest import Forest
from dise_eval.reports.page import Report
from dise_eval.reports.paper import PAPER, paper_figure
from dise_eval.reports.table import Cell, FigureTable
from dise_eval.statistics import resampling
from dise_eval.statistics.metrics import Scores

FIRST = {"first": 1, "top_5": 5, "top_10": 10}

NAMES = tuple("-".join(pair) for pair in PAIRS)
"""Pairs of inputs whose predictions are compared; others are beside the first."""


def ranks(probe: Ranks, records: Sequence[Record]) -> Report:
    """Return the report of the true token's rank where a random one stands."""
    trials = list(map(np.array, _found(probe, records)))
    rows: list[dict[str, Cell]] = [
        {
            "rank": name,
            "share": resampling.mean(np.array([(of_text < first).mean() for of_text in trials])),
            PAPER: paper_figure("ranks", "", name),
            "num_trials": sum(map(len, trials)),
        }
        for name, first in FIRST.items()
    ]
    figures = FigureTable(("rank",), rows)
    title = "Rank of the true token where the input holds a random one"
    return Report(title, figures, [Forest("ranks", figures, "share", "share of a text's trials")])


def distances(probe: Distances, records: Sequence[Record]) -> Report:
    """Return the report of how far apart the predictions for a true, a masked and a
    random token are. Wasserstein distance over token ids, as a share of the vocabulary.
    """
    texts = _found(probe, records)
    rows: list[dict[str, Cell]] = []
    for pair in NAMES:
        row: dict[str, Cell] = {"inputs": pair}
        for measure in ("js", "wasserstein"):
            values = _values(texts, measure, pair)
            first = _values(texts, measure, NAMES[0])
            row |= {
                measure: resampling.mean(values.mean(axis=1)),
                f"{measure}_median": float(np.median(values)),
                f"{measure}_minus_{NAMES[0]}": None
                if pair == NAMES[0]
                else resampling.mean((values - first).mean(axis=1), True),
            }
        rows.append(row)
    figures = FigureTable(("inputs",), rows)
    title = "Predictions at a position that holds the true token, the mask, or a random token"
    forest = Forest("distances", figures, "js", "mean Jensen-Shannon divergence, nats")
    return Report(title, figures, [forest])


def coherence(probe: Coherence, records: Sequence[Record]) -> Report:
    """Return the report of DiSE's fall when tokens are replaced by random ones."""
    texts = _found(probe, records)
    rows: list[dict[str, Cell]] = []
    for name in texts[0]:
        pairs = [(scores[name]["natural"], scores[name]["randomized"]) for scores in texts]
        values = np.array([natural - randomized for natural, randomized in pairs])
        rows.append(
            {
                "replaced": name,
                "mean_difference": resampling.mean(values, True),
                "share_above_0": resampling.mean((values > 0).astype(float)),
                "num_texts": len(values),
            }
        )
    figures = FigureTable(("replaced",), rows)
    title = "DiSE of the natural text minus DiSE of the randomized one, nats"
    forest = Forest("coherence", figures, "mean_difference", title, 0, "no difference")
    return Report("Natural against randomized text", figures, [forest])


def _found(probe: Probe, records: Sequence[Record]) -> list[Any]:
    """Return what was found in texts that have tokens. Raises InputError for none."""
    values = [record[probe.key] for record in records if record[probe.key]]
    if not values:
        raise InputError(
            "No text has a token to probe: give others with --texts, or let the model write more.",
            "texts",
        )
    return values


def _values(
    texts: Sequence[Sequence[Mapping[str, Mapping[str, float]]]], measure: str, pair: str
) -> Scores:
    return np.array([[trial[measure][pair] for trial in trials] for trials in texts])
