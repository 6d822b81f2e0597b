"""What choosing one of several answers or candidates by score solves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from dise_core.params.requests import SamplingParams
from dise_core.writing.waves import waves
from dise_eval.calibration.fitting import calibrate_scores
from dise_eval.calibration.guarantee import Counts
from dise_eval.experiments.experiments import Likelihood, Sampled
from dise_eval.experiments.records import (
    RankedRecord,
    SampledRecord,
    drawn_scores,
    finite,
    mean_nfe,
    rights_of,
    scores_of,
)
from dise_eval.reports.forest import Forest
from dise_eval.reports.page import Report
from dise_eval.reports.paper import PAPER, paper_figure
from dise_eval.reports.table import Cell, FigureTable
from dise_eval.reports.uncertainty import base_rate
from dise_eval.statistics import resampling
from dise_eval.statistics.metrics import Rights, Scores
from dise_eval.statistics.references import references_of

STOPS = (0.5, 0.7, 0.8, 0.9, 0.95)

BESIDE = ("mean of N", "majority vote")


def best_of_n(experiment: Sampled, records: Sequence[SampledRecord]) -> Report:
    """Return the report of what choosing by score gains."""
    labels, dataset = experiment.contenders.labels, experiment.questions.dataset.name
    papers = {
        label: paper_figure("best_of_5", dataset, f"{label} at {experiment.params.max_tokens}")
        for label in labels
    }
    figures = choice_figures(records, labels, papers)
    guide = float(rights_of(records).mean())
    title = "share of questions solved"
    forest = Forest("best_of_n", figures, "accuracy", title, guide, "an answer at random")
    more = {
        "answers": base_rate(records),
        "passes": _passes(records),
        "adaptive": adaptive(records, labels),
    }
    return Report(f"Best of {experiment.params.n}", figures, [forest], more)


def choice_figures(
    records: Sequence[SampledRecord],
    labels: Sequence[str],
    papers: Mapping[str, float | None] | None = None,
) -> FigureTable:
    """Return the share of questions solved by each way of choosing an answer; by how much
    that is more than by an answer at random and by a majority vote; and the passes that
    its scores take.
    papers: the paper's share for each contender.
    """
    rights = rights_of(records)
    ways = {
        "greedy": np.array([record["greedy"]["is_correct"] for record in records], float),
        "mean of N": rights.mean(axis=1),
        "majority vote": np.array([_majority(record) for record in records], float),
        "oracle": rights.any(axis=1).astype(float),
    }
    everything = np.full(len(rights), rights.shape[1])
    for label in labels:
        ways[label] = _best_of_first(scores_of(records, label), rights, everything)
    passes = {name: rights.shape[1] * nfe for name, nfe in mean_nfe(drawn_scores(records)).items()}
    rows: list[dict[str, Cell]] = [
        {
            "chosen_by": name,
            "accuracy": resampling.mean(values),
            "score_nfe": passes.get(name, 0.0),
            PAPER: (papers or {}).get(name),
            **{f"above {base}": resampling.mean(values - ways[base], True) for base in BESIDE},
        }
        for name, values in ways.items()
    ]
    return FigureTable(("chosen_by",), rows)


def adaptive(records: Sequence[SampledRecord], labels: Sequence[str]) -> FigureTable:
    """Return, by contender and probability to stop at, what adaptive best-of-n solves, by
    how much that is more than with all answers drawn, and how many it draws.

    The answers are the first of those of plain best-of-n, which stop_at would draw; each
    answer's probability is by a map fitted on other questions. Empty with a single
    question.
    """
    rows: list[dict[str, Cell]] = []
    for label in labels if len(records) > 1 else ():
        scores, rights = scores_of(records, label), rights_of(records)
        probable = calibrate_scores(scores, rights)
        best = _best_of_first(scores, rights, np.full(len(scores), scores.shape[1]))
        for stop in STOPS:
            drawn = _drawn(probable, stop)
            solved = _best_of_first(scores, rights, drawn)
            rows.append(
                {
                    "scorer": label,
                    "stop_at": str(stop),
                    "accuracy": resampling.mean(solved),
                    "difference": resampling.mean(solved - best, True),
                    "answers": float(drawn.mean()),
                }
            )
    return FigureTable(("scorer", "stop_at"), rows)


def likelihood(experiment: Likelihood, records: Sequence[RankedRecord]) -> Report:
    """Return the report of how often the likeliest candidate is right."""
    labels = experiment.contenders.labels
    passes = mean_nfe(scores for record in records for scores in record["candidates"])
    solved = {label: _likeliest(records, label) for label in labels}
    reference = references_of(passes)[0]
    rows: list[dict[str, Cell]] = [
        {
            "scorer": label,
            "nfe": passes[label],
            "accuracy": resampling.mean(solved[label]),
            "difference": None
            if label == reference
            else resampling.mean(solved[label] - solved[reference], True),
            PAPER: paper_figure("likelihood", experiment.questions.dataset.name, label),
        }
        for label in labels
    ]
    figures = FigureTable(("scorer",), rows)
    chance = float(np.mean([1 / len(record["candidates"]) for record in records]))
    title = "share of questions whose likeliest candidate is right"
    return Report("Likelihood", figures, [Forest("likelihood", figures, "accuracy", title, chance)])


def _passes(records: Sequence[SampledRecord]) -> FigureTable:
    """Return the mean NFE of one answer and of all."""
    rows: list[dict[str, Cell]] = [
        {"answers": name, "nfe": float(np.mean([record["nfe"][name] for record in records]))}
        for name in ("one", "all")
    ]
    return FigureTable(("answers",), rows)


def _drawn(probable: Scores, stop: float) -> Counts:
    """Return the answers that stop_at draws, int64 [Q]. probable: [Q, A]."""
    num_answers = probable.shape[1]
    drawn = np.full(len(probable), num_answers)
    ends = [wave.stop for wave in waves(SamplingParams(best_of=num_answers, stop_at=stop))]
    for end in reversed(ends):
        drawn[probable[:, :end].max(axis=1) >= stop] = end
    return drawn


def _best_of_first(scores: Scores, rights: Rights, drawn: Counts) -> Scores:
    """Return whether the best of each question's first answers is right, float64 [Q]."""
    is_drawn = np.arange(scores.shape[1]) < drawn[:, None]
    best = np.where(is_drawn, scores, -np.inf).argmax(axis=1)
    is_solved: Scores = rights[np.arange(len(rights)), best].astype(float)
    return is_solved


def _likeliest(records: Sequence[RankedRecord], label: str) -> Scores:
    """Return whether each question's likeliest candidate is right, float64 [Q]."""
    candidates = [[finite(c[label]["rank_value"]) for c in r["candidates"]] for r in records]
    likeliest = [np.argmax(values) for values in candidates]
    return np.equal(likeliest, [record["right"] for record in records]).astype(float)


def _majority(record: SampledRecord) -> float:
    """Return the share of right ones among the most frequent extracted answers."""
    answers = [answer for answer in record["answers"] if answer["extracted"] is not None]
    votes = Counter(answer["extracted"] for answer in answers)
    first = {answer["extracted"]: answer["is_correct"] for answer in reversed(answers)}
    maximum = max(votes.values(), default=0)
    winners = [first[extracted] for extracted, count in votes.items() if count == maximum]
    return float(np.mean(winners)) if winners else 0.0
