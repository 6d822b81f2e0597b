"""What the journals of the experiments hold of each item, as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NotRequired, TypedDict, TypeVar

import numpy as np

from dise_eval.graders.verdict import VerdictRecord
from dise_eval.statistics.metrics import Rights, Scores

RecordT = TypeVar("RecordT", bound=Mapping[str, object])
"""What an experiment records of an item."""


class ScoreRecord(TypedDict):
    """A contender's score of a text; None is -inf. nfe: its cost alone."""

    value: float | None
    rank_value: float | None
    log_likelihood: NotRequired[float | None]
    nfe: float


class GradedRecord(VerdictRecord):
    """An answer with its verdict."""

    text: str


class AnswerRecord(GradedRecord):
    """An answer that was drawn."""

    token_ids: list[int]
    scores: dict[str, ScoreRecord]


class SampledRecord(TypedDict):
    """Several answers to one question, and the greedy one. nfe: of all, and of one."""

    id: str
    nfe: dict[str, float]
    greedy: GradedRecord
    answers: list[AnswerRecord]


class RankedRecord(TypedDict):
    """The scores of each candidate of a question, and which is right."""

    id: str
    right: int
    candidates: list[dict[str, ScoreRecord]]


class GivenRecord(VerdictRecord):
    """A given answer."""

    id: str
    group: str
    scores: dict[str, ScoreRecord]


class WayRecord(TypedDict):
    """One answer to one question in one way. is_revised: None without a reviser."""

    id: str
    way: str
    text: str
    is_correct: bool
    nfe: float
    num_tokens: int
    stopped_by: str | None
    is_revised: bool | None


def finite(value: float | None) -> float:
    """Return a score as records hold it; None stands for -inf."""
    return float("-inf") if value is None else value


LENGTH = "length"
"""The baseline that takes the shorter answer, by its characters, for the surer one."""


def scores_of(records: Sequence[SampledRecord], label: str) -> Scores:
    """Return a contender's scores, or LENGTH's, float64 [Q, A]; -inf for none."""
    if label == LENGTH:
        return -np.array([[len(a["text"]) for a in r["answers"]] for r in records], float)
    return np.array([[finite(a["scores"][label]["value"]) for a in r["answers"]] for r in records])


def rights_of(records: Sequence[SampledRecord]) -> Rights:
    """Return which answers are right, bool [Q, A]."""
    return np.array([[answer["is_correct"] for answer in record["answers"]] for record in records])


def mean_nfe(scores: Iterable[Mapping[str, ScoreRecord]]) -> dict[str, float]:
    """Return the mean NFE of each contender's scores of texts."""
    passes = defaultdict[str, list[float]](list)
    for by_label in scores:
        for label, score in by_label.items():
            passes[label].append(score["nfe"])
    return {label: float(np.mean(counts)) for label, counts in passes.items()}


def drawn_scores(records: Iterable[SampledRecord]) -> list[dict[str, ScoreRecord]]:
    """Return the scores of all answers."""
    return [answer["scores"] for record in records for answer in record["answers"]]
