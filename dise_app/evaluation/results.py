"""Computes each experiment's figures from its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dise_app.evaluation import metrics
from dise_app.evaluation.metrics import Rights, Scores
from dise_core.params import SamplingParams
from dise_core.records import Record
from dise_core.waves import waves

Figures = Record

STOPS = (0.5, 0.7, 0.8, 0.9, 0.95)
"""Probabilities at which adaptive best-of-n is tried."""


def table_of(records: Sequence[Record], label: str) -> tuple[Scores, Rights]:
    """Return one contender's scores, float64 [Q, A], -inf where it has none, and which answers are
    right, bool [Q, A].
    """
    scores = [
        [_number(answer["scores"][label]["value"]) for answer in record["answers"]]
        for record in records
    ]
    rights = [[answer["is_correct"] for answer in record["answers"]] for record in records]
    return np.array(scores), np.array(rights)


def uncertainty(records: Sequence[Record], labels: Sequence[str]) -> Figures:
    """Return how well each contender tells right from wrong, with intervals over questions."""
    return {
        label: _uncertainty(*table_of(records, label)) | {"nfe": _mean_nfe(records, label)}
        for label in labels
    }


def _uncertainty(scores: Scores, is_right: Rights) -> Figures:
    """Return the figures of one contender; with a single question, none that need calibration."""
    both = metrics.has_both(is_right)
    return {
        "auroc_pooled": _estimate(metrics.auroc, scores, is_right),
        "auroc_per_question": _estimate(metrics.auroc_per_question, scores, is_right)
        | {"num_questions": int(both.sum())},
        "prr": _estimate(metrics.prr, scores, is_right),
        "aurc": _estimate(metrics.aurc, scores, is_right),
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
    how well log-likelihoods do for a contender that estimates them.
    """
    groups = dict.fromkeys(record["group"] for record in records)
    return {
        group: {
            label: _apart([r for r in records if r["group"] == group], label) for label in labels
        }
        for group in groups
    }


def _apart(records: Sequence[Record], label: str) -> Figures:
    is_right = np.array([[record["is_correct"]] for record in records])
    scores = [record["scores"][label] for record in records]
    values, totals = (
        np.array([[_number(score.get(name))] for score in scores])
        for name in ("value", "log_likelihood")
    )
    has_totals = all("log_likelihood" in score for score in scores)
    return {
        "num_answers": len(records),
        "num_right": int(is_right.sum()),
        "auroc": _estimate(metrics.auroc, values, is_right),
        "auroc_log_likelihood": _estimate(metrics.auroc, totals, is_right) if has_totals else None,
        "median_perplexity": float(np.median(np.exp(-values))),
    }


def best_of_n(records: Sequence[Record], labels: Sequence[str]) -> Figures:
    """Return the share of questions solved by each way of choosing an answer, with intervals over
    questions.
    """
    rights = np.array(
        [[answer["is_correct"] for answer in record["answers"]] for record in records]
    )
    ways = {
        "greedy": np.array([record["greedy"]["is_correct"] for record in records], float),
        "mean of N": rights.mean(axis=1),
        "majority vote": np.array([_majority(record) for record in records], float),
        "oracle": rights.any(axis=1).astype(float),
    }
    for label in labels:
        scores, _ = table_of(records, label)
        ways[label] = rights[np.arange(len(rights)), scores.argmax(axis=1)].astype(float)
    return {name: share(values) for name, values in ways.items()}


def adaptive(records: Sequence[Record], labels: Sequence[str]) -> Figures:
    """Return, by contender and probability to stop at, what adaptive best-of-n solves and draws.

    The answers are the first of those of plain best-of-n, which stop_at would draw; each answer's
    probability is by a map fitted on other questions. Empty with a single question.
    """
    figures: Figures = {}
    for label in labels if len(records) > 1 else ():
        scores, rights = table_of(records, label)
        probable = metrics.calibrated(scores, rights)
        drawn = {stop: _drawn(probable, stop) for stop in STOPS}
        figures[label] = {
            str(stop): {
                "accuracy": share(_best_of_first(scores, rights, each)),
                "answers": float(each.mean()),
            }
            for stop, each in drawn.items()
        }
    return figures


def _drawn(probable: Scores, stop: float) -> npt.NDArray[np.int64]:
    """Return how many answers stop_at draws for each question, int64 [Q]. probable: [Q, A]."""
    most = probable.shape[1]
    drawn = np.full(len(probable), most)
    ends = [wave.stop for wave in waves(SamplingParams(best_of=most, stop_at=stop))]
    for end in reversed(ends):
        drawn[probable[:, :end].max(axis=1) >= stop] = end
    return drawn


def _best_of_first(scores: Scores, rights: Rights, drawn: npt.NDArray[np.int64]) -> Scores:
    """Return whether the best of each question's first answers is right, float64 [Q]."""
    seen = np.arange(scores.shape[1]) < drawn[:, None]
    best = np.where(seen, scores, -np.inf).argmax(axis=1)
    chosen: Scores = rights[np.arange(len(rights)), best].astype(float)
    return chosen


def likelihood(records: Sequence[Record], labels: Sequence[str]) -> Figures:
    """Return, by contender, the share of questions whose likeliest candidate is right, and the mean
    NFE per candidate.
    """
    figures = {}
    for label in labels:
        values = [
            [_number(candidate[label]["rank_value"]) for candidate in record["candidates"]]
            for record in records
        ]
        is_right = [
            int(np.argmax(row)) == record["right"]
            for row, record in zip(values, records, strict=True)
        ]
        passes = [
            candidate[label]["nfe"] for record in records for candidate in record["candidates"]
        ]
        figures[label] = {
            "accuracy": share(np.array(is_right, float)),
            "nfe": float(np.mean(passes)),
        }
    return figures


def lengths(records: Sequence[Record]) -> Figures:
    """Return, by length controller, the share solved; the mean NFE, seconds and length; and how
    often it stopped for each reason.
    """
    figures = {}
    for name in dict.fromkeys(record["variant"] for record in records):
        each = [record for record in records if record["variant"] == name]
        figures[name] = {
            "accuracy": share(np.array([result["is_correct"] for result in each], float)),
            "nfe": float(np.mean([result["nfe"] for result in each])),
            "seconds": float(np.mean([result["seconds"] for result in each])),
            "num_tokens": float(np.mean([result["num_tokens"] for result in each])),
            "stopped_by": dict(
                sorted(Counter(str(result["stopped_by"]) for result in each).items())
            ),
        }
    return figures


def _majority(record: Record) -> float:
    """Return whether the most frequent extracted answer is right; of several equally frequent ones,
    the share that is right.
    """
    answers = record["answers"]
    votes = Counter(answer["extracted"] for answer in answers if answer["extracted"] is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    winners = [extracted for extracted, count in votes.items() if count == most]
    first = [
        next(answer for answer in answers if answer["extracted"] == winner) for winner in winners
    ]
    return float(np.mean([answer["is_correct"] for answer in first]))


def share(values: Scores) -> Figures:
    """Return the mean over questions with its 95 % bootstrap interval."""
    random = np.random.default_rng(0)
    means = values[random.integers(0, len(values), (1000, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return {
        "value": float(values.mean()),
        "low": float(low),
        "high": float(high),
        "num_questions": len(values),
    }


def _estimate(figure: Any, scores: Scores, is_right: Rights) -> Figures:
    estimate = metrics.bootstrap(figure, scores, is_right)
    numbers = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {name: _value(number) for name, number in numbers.items()} | {
        "num_questions": estimate.num_questions
    }


def _mean_nfe(records: Sequence[Record], label: str) -> float:
    return float(
        np.mean(
            [answer["scores"][label]["nfe"] for record in records for answer in record["answers"]]
        )
    )


def _value(number: float) -> float | None:
    return None if np.isnan(number) else number


def _mean(values: Scores) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def _number(value: float | None) -> float:
    return float("-inf") if value is None else value
