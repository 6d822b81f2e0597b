"""What choosing one of several answers solves: all of them drawn, or until one is sure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dise_app.evaluation import metrics
from dise_app.evaluation.metrics import Rights, Scores
from dise_app.evaluation.results import Figures, mean_nfe, rights_of, share, table_of
from dise_core.params import SamplingParams
from dise_core.records import Record
from dise_core.waves import waves

STOPS = (0.5, 0.7, 0.8, 0.9, 0.95)
"""Probabilities at which adaptive best-of-n is tried."""


BESIDE = ("mean of N", "majority vote")
"""The ways to choose that the others are compared with."""


def best_of_n(records: Sequence[Record], labels: Sequence[str]) -> Figures:
    """Return the share of questions solved by each way of choosing an answer, with intervals over
    questions; by how much that is more than by an answer at random and by a majority vote; and the
    passes that its scores take.
    """
    rights = rights_of(records)
    ways = {
        "greedy": np.array([record["greedy"]["is_correct"] for record in records], float),
        "mean of N": rights.mean(axis=1),
        "majority vote": np.array([_majority(record) for record in records], float),
        "oracle": rights.any(axis=1).astype(float),
    }
    for label in labels:
        scores, _ = table_of(records, label)
        ways[label] = rights[np.arange(len(rights)), scores.argmax(axis=1)].astype(float)
    passes = {label: rights.shape[1] * mean_nfe(records, label) for label in labels}
    return {
        name: share(values)
        | {"score_nfe": passes.get(name, 0.0)}
        | {f"above {other}": share(values - ways[other]) for other in BESIDE}
        for name, values in ways.items()
    }


def adaptive(records: Sequence[Record], labels: Sequence[str]) -> Figures:
    """Return, by contender and probability to stop at, what adaptive best-of-n solves, by how much
    that is more than with all answers drawn, and how many it draws.

    The answers are the first of those of plain best-of-n, which stop_at would draw; each answer's
    probability is by a map fitted on other questions. Empty with a single question.
    """
    figures: Figures = {}
    for label in labels if len(records) > 1 else ():
        scores, rights = table_of(records, label)
        probable = metrics.calibrated(scores, rights)
        best = _best_of_first(scores, rights, np.full(len(scores), scores.shape[1]))
        drawn = {stop: _drawn(probable, stop) for stop in STOPS}
        solved = {stop: _best_of_first(scores, rights, each) for stop, each in drawn.items()}
        figures[label] = {
            str(stop): {
                "accuracy": share(solved[stop]),
                "difference": share(solved[stop] - best),
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
