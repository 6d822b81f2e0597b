"""Computes each experiment's figures from its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from dise_app.evaluation import metrics, resampling
from dise_app.evaluation.comparison import references_of
from dise_app.evaluation.metrics import Estimate, Rights, Scores
from dise_core.records import Record

Figures = Record

COMPARED = ("auroc_pooled", "auroc_per_question", "prr")
"""The figures in which scorers are compared."""


def table_of(records: Sequence[Record], label: str) -> tuple[Scores, Rights]:
    """Return one contender's scores, float64 [Q, A], -inf where it has none, and which answers are
    right, bool [Q, A].
    """
    scores = [
        [_number(answer["scores"][label]["value"]) for answer in record["answers"]]
        for record in records
    ]
    return np.array(scores), rights_of(records)


def rights_of(records: Sequence[Record]) -> Rights:
    """Return which answers are right, bool [Q, A]."""
    return np.array([[answer["is_correct"] for answer in record["answers"]] for record in records])


def uncertainty(records: Sequence[Record], labels: Sequence[str]) -> Figures:
    """Return how well each contender tells right from wrong, with intervals over questions."""
    return {
        label: _uncertainty(*table_of(records, label)) | {"nfe": mean_nfe(records, label)}
        for label in labels
    }


def _uncertainty(scores: Scores, is_right: Rights) -> Figures:
    """Return the figures of one contender; with a single question, none that need calibration."""
    return {
        **{
            name: _fields(resampling.resampled(name, scores, is_right).estimate)
            for name in resampling.FIGURES
        },
        **{
            name: _value(figure(scores, is_right))
            for name, figure in (
                ("prr_half", metrics.prr_half),
                ("eaurc", metrics.eaurc),
                ("augrc", metrics.augrc),
            )
        },
        **_agreement(scores, is_right),
        "mean_score_right": _mean(scores[is_right]),
        "mean_score_wrong": _mean(scores[~is_right]),
    }


def base_rate(records: Sequence[Record]) -> Figures:
    """Return the share of right answers, with its interval over questions."""
    return share(rights_of(records).mean(axis=1))


def compared(
    records: Sequence[Record], labels: Sequence[str], references: Sequence[str] = ()
) -> Mapping[str, Figures]:
    """Return, by reference, the differences of the other contenders from it in the figures of
    COMPARED. Without references they are the baseline of most passes and that of fewest; without
    baselines the first contender.
    """
    passes = {label: mean_nfe(records, label) for label in labels}
    tables = {label: table_of(records, label) for label in labels}
    found = {
        label: {name: resampling.resampled(name, *tables[label]) for name in COMPARED}
        for label in labels
    }
    return {
        reference: {
            label: {
                name: _fields(each[name].minus(found[reference][name]).estimate)
                for name in COMPARED
            }
            for label, each in found.items()
            if label != reference
        }
        for reference in references or references_of(passes)
    }


def _agreement(scores: Scores, is_right: Rights) -> Figures:
    """Return how well probabilities fitted on other questions agree with the outcomes; with a
    single question None for each.
    """
    probabilities = metrics.calibrated(scores, is_right) if len(scores) > 1 else None
    figures = {
        "ece": metrics.ece,
        "adaptive_ece": metrics.adaptive_ece,
        "smooth_ece": metrics.smooth_ece,
        "brier": metrics.brier,
        "brier_skill": metrics.brier_skill,
    }
    values = {
        name: None if probabilities is None else _value(figure(probabilities, is_right))
        for name, figure in figures.items()
    }
    return {**values, "num_bins": metrics.NUM_BINS}


def given(records: Sequence[Record], labels: Sequence[str]) -> Figures:
    """Return, by group and contender, how well scores tell right from wrong, with intervals, and
    how well log-likelihoods do for a contender that estimates them; and its difference from the
    first of the references, as for `compared`.
    """
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(record["group"], []).append(record)
    reference = references_of({label: _given_nfe(records, label) for label in labels})[0]
    return {
        group: {label: _apart(each, label, reference) for label in labels}
        for group, each in grouped.items()
    }


def _apart(records: Sequence[Record], label: str, reference: str) -> Figures:
    is_right = np.array([[record["is_correct"]] for record in records])
    values, totals = (_column(records, label, name) for name in ("value", "log_likelihood"))
    auroc, of_totals, beside = (
        resampling.resampled("auroc_pooled", each, is_right)
        for each in (values, totals, _column(records, reference, "value"))
    )
    has_totals = all("log_likelihood" in record["scores"][label] for record in records)
    return {
        "num_answers": len(records),
        "num_right": int(is_right.sum()),
        "nfe": _given_nfe(records, label),
        "auroc": _fields(auroc.estimate),
        "auroc_log_likelihood": _fields(of_totals.estimate) if has_totals else None,
        "difference": _fields(auroc.minus(beside).estimate) if label != reference else None,
        "median_perplexity": float(np.median(np.exp(-values))),
    }


def _column(records: Sequence[Record], label: str, name: str) -> Scores:
    """Return one field of a contender's scores of given answers, float64 [Q, 1]."""
    return np.array([[_number(record["scores"][label].get(name))] for record in records])


def likelihood(records: Sequence[Record], labels: Sequence[str]) -> Figures:
    """Return, by contender, the share of questions whose likeliest candidate is right, the mean NFE
    per candidate, and by how much the share is higher than that of the first of the references, as
    for `compared`.
    """
    passes = {
        label: float(np.mean([each[label]["nfe"] for r in records for each in r["candidates"]]))
        for label in labels
    }
    solved = {label: _likeliest(records, label) for label in labels}
    [reference, *_] = references_of(passes)
    return {
        label: {
            "accuracy": share(solved[label]),
            "nfe": passes[label],
            "difference": share(solved[label] - solved[reference]) if label != reference else None,
        }
        for label in labels
    }


def _likeliest(records: Sequence[Record], label: str) -> Scores:
    """Return whether each question's likeliest candidate is right, float64 [Q]."""
    values = [
        [_number(candidate[label]["rank_value"]) for candidate in record["candidates"]]
        for record in records
    ]
    found = [
        int(np.argmax(row)) == record["right"] for row, record in zip(values, records, strict=True)
    ]
    return np.array(found, float)


def lengths(records: Sequence[Record], beside: Mapping[str, str]) -> Figures:
    """Return, by length controller, the share solved; the mean NFE, seconds and length; how often
    it stopped for each reason; and, for one with another beside it, by how much it solves more.

    beside: the other's name, by the controller's.
    """
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(record["variant"], []).append(record)
    solved = {
        name: np.array([result["is_correct"] for result in each], float)
        for name, each in grouped.items()
    }
    return {
        name: {
            "accuracy": share(solved[name]),
            **{
                column: float(np.mean([result[column] for result in each]))
                for column in ("nfe", "seconds", "num_tokens")
            },
            "stopped_by": dict(sorted(Counter(str(r["stopped_by"]) for r in each).items())),
            "difference": share(solved[name] - solved[beside[name]]) if name in beside else None,
        }
        for name, each in grouped.items()
    }


def share(values: Scores) -> Figures:
    """Return the mean over questions with its 95 % bootstrap interval."""
    return _fields(resampling.mean(values))


def _fields(estimate: Estimate) -> Figures:
    numbers = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {name: _value(number) for name, number in numbers.items()} | {
        "num_questions": estimate.num_questions
    }


def mean_nfe(records: Sequence[Record], label: str) -> float:
    """Return the mean NFE of a contender's scores of answers."""
    return float(
        np.mean(
            [answer["scores"][label]["nfe"] for record in records for answer in record["answers"]]
        )
    )


def _given_nfe(records: Sequence[Record], label: str) -> float:
    return float(np.mean([record["scores"][label]["nfe"] for record in records]))


def _value(number: float) -> float | None:
    return None if np.isnan(number) else number


def _mean(values: Scores) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def _number(value: float | None) -> float:
    return float("-inf") if value is None else value
