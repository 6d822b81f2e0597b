"""What length controllers or revisers solve, and what they cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dise_eval.experiments.records import VariantRecord
from dise_eval.experiments.variants import Lengths, Revisions, Variant
from dise_eval.reports.page import Forest, Report
from dise_eval.reports.paper import PAPER, paper_figure
from dise_eval.reports.table import Cell, FigureTable
from dise_eval.statistics import resampling
from dise_eval.statistics.metrics import Rights

ByName = Mapping[str, Sequence[VariantRecord]]


def length(experiment: Lengths, records: Sequence[VariantRecord]) -> Report:
    """Return the report of each length controller beside the longest fixed length."""
    by_name, dataset = _by_name(records), experiment.questions.dataset.name
    rows = [_solved(variant, by_name) for variant in experiment.variants]
    for name, row in zip(map(str, experiment.variants), rows, strict=True):
        row |= {
            PAPER: paper_figure("length", dataset, name),
            "num_tokens": _mean(record["num_tokens"] for record in by_name[name]),
            "seconds": _mean(record["seconds"] for record in by_name[name]),
            "stopped_by": _counts(record["stopped_by"] for record in by_name[name]),
        }
    return _report("Length", rows)


def revision(experiment: Revisions, records: Sequence[VariantRecord]) -> Report:
    """Return the report of each variant. For one with a reviser also the share of answers that it
    changed, how many that were wrong came right and the reverse, and the best of the variants
    without one, and of best-of-N among them, that take no more passes.
    """
    by_name = _by_name(records)
    rows = [_solved(variant, by_name) for variant in experiment.variants]
    plain = [variant for variant in experiment.variants if not variant.reviser]
    drawn = [variant for variant in plain if variant.params.best_of is not None]
    for variant, row in zip(experiment.variants, rows, strict=True):
        if variant.beside is None:
            continue
        answers = by_name[str(variant)]
        is_right, was_right = _rights(answers), _rights(by_name[str(variant.beside)])
        most = _nfe(answers)
        row |= {
            "revised": _mean(bool(record["is_revised"]) for record in answers),
            "mended": int((is_right & ~was_right).sum()),
            "spoiled": int((was_right & ~is_right).sum()),
            "best_other": _best_within(plain, by_name, most),
            "best_of_n": _best_within(drawn, by_name, most),
        }
    return _report("Revision", rows)


def _report(title: str, rows: Sequence[Mapping[str, Cell]]) -> Report:
    figures = FigureTable(("variant",), rows)
    return Report(title, figures, [Forest(title.lower(), figures, "accuracy", "share solved")])


def _by_name(records: Iterable[VariantRecord]) -> ByName:
    by_name = defaultdict[str, list[VariantRecord]](list)
    for record in records:
        by_name[record["variant"]].append(record)
    return by_name


def _solved(variant: Variant, by_name: ByName) -> dict[str, Cell]:
    answers = by_name[str(variant)]
    is_right, difference = _rights(answers).astype(float), None
    if variant.beside is not None:
        difference = resampling.mean(is_right - _rights(by_name[str(variant.beside)]), True)
    return {
        "variant": str(variant),
        "accuracy": resampling.mean(is_right),
        "difference": difference,
        "nfe": _nfe(answers),
    }


def _best_within(variants: Sequence[Variant], by_name: ByName, nfe: float) -> str | None:
    """Return the variant that solves most with at most so many passes; None if there is none."""
    within = [name for name in map(str, variants) if _nfe(by_name[name]) <= nfe]
    return max(within, key=lambda name: _rights(by_name[name]).mean(), default=None)


def _rights(records: Iterable[VariantRecord]) -> Rights:
    return np.array([record["is_correct"] for record in records], np.bool_)


def _nfe(records: Iterable[VariantRecord]) -> float:
    return _mean(record["nfe"] for record in records)


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _counts(reasons: Iterable[str | None]) -> str | None:
    counts = Counter(filter(None, reasons))
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or None
