"""Fits calibrations of decisions to labelled answers.

Labels hold them: scores are the model's own shares, float64 [n, K], 0 where a question
has fewer than K options; is_right bool [n, K], true for the truth alone; questions the
inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dise_core.errors import InputError
from dise_decide.calibration import (
    Coverage,
    QuestionFit,
    Tails,
    Temperature,
    log_odds,
    mapped,
    nameless,
    tails_of,
)
from dise_decide.questions import AnyQuestion
from dise_eval.calibration import fitting, searching
from dise_eval.calibration.fitting import Labels, Method
from dise_eval.calibration.guarantee import Promise, Rule
from dise_eval.statistics.metrics import brier

LEAST_OF_TYPE = 100
"""Labels for a type of questions, and for a temperature."""

Making = Callable[[Labels], Temperature | Tails | None]


@dataclass(frozen=True, slots=True)
class Promises:
    """A risk that is kept by a rule, and the share of answer sets that hold the truth."""

    risk: Promise | None = None
    rule: Rule = "sgr"
    coverage: float | None = None


def fitted(
    labels: Labels, questions: Sequence[AnyQuestion], min_labels: int, promises: Promises
) -> tuple[QuestionFit, Labels]:
    """Return the fit, by the map of least Brier score on inputs left out, and the
    `events` there. What is promised is fitted on half of the inputs, and the map on the
    others.

    Raises InputError for fewer labels than `min_labels`, and for what cannot be promised.
    """
    kind, risk, coverage = questions[0].type, promises.risk, promises.coverage
    events(kind, None, labels).check(min_labels)
    map_labels, promise_labels = labels.split(0.5) if risk or coverage else (labels, labels)
    (before := events(kind, None, map_labels)).check(1)
    attempts = list[tuple[Temperature | Tails | None, Labels]]()
    for make in _candidates(questions, len(map_labels)):
        with suppress(InputError):  # a tail does not rise
            folds = [
                events(kind, make(map_labels.of(~here)), map_labels.of(here))
                for here in map_labels.folds()
            ]
            attempts.append((make(map_labels), joined(folds)))
    map_, held_out = min(attempts, key=lambda pair: brier(pair[1].scores, pair[1].is_right))
    distinct = {nameless(question).model_dump_json(): question for question in questions}
    shuffled = promise_labels.of(np.random.default_rng(0).permutation(len(promise_labels)))
    one_each = shuffled.one_each()
    sure = likeliest(map_, one_each)
    fit = QuestionFit(
        type=questions[0].type,
        question=nameless(questions[0]) if len(distinct) == 1 else None,
        map=map_,
        num_labels=len(map_labels),
        num_inputs=map_labels.num_questions,
        before=fitting.figures(before.scores, before),
        after=fitting.figures(held_out.scores, held_out),
        threshold=searching.search(promises.rule, sure, risk).threshold if risk else None,
        sets=answer_sets(one_each, map_, coverage) if coverage else None,
    )
    return fit, held_out


def joined(parts: Sequence[Labels]) -> Labels:
    """Return the labels of all."""
    fields = ((part.scores, part.is_right, part.questions) for part in parts)
    return Labels(*map(np.concatenate, zip(*fields, strict=True)))


def likeliest(map_: Temperature | Tails | None, labels: Labels) -> Labels:
    """Return the confidence in each likeliest answer, [n], and whether that is right."""
    shares, confidences = mapped(map_, labels.scores)
    is_right = np.take_along_axis(labels.is_right, shares.argmax(axis=1)[:, None], axis=1)[:, 0]
    return Labels(confidences, is_right, labels.questions)


def events(kind: str, map_: Temperature | Tails | None, labels: Labels) -> Labels:
    """Return the probabilities that figures are about, [n], and whether it is so: of a
    predicate that it is yes, else that the likeliest answer is right.
    """
    if kind != "predicate":
        return likeliest(map_, labels)
    return Labels(mapped(map_, labels.scores)[0][:, 0], labels.is_right[:, 0], labels.questions)


def answer_sets(labels: Labels, map_: Temperature | Tails | None, coverage: float) -> Coverage:
    """Return what split conformal prediction takes: of the scores 1 - p(truth) of n
    labels the ceil((n + 1) coverage)-th smallest. Raises InputError where n is less.
    labels: one of each input, unknown to the map.
    """
    number = len(labels)
    rank = int(np.ceil((number + 1) * coverage - 1e-9))
    if rank > number:
        raise InputError(
            f"a coverage of {coverage:g} needs labels of {np.ceil(coverage / (1 - coverage)):.0f} "
            f"inputs beside those of the map, not of {number}",
            "coverage",
        )
    truths = np.sort(mapped(map_, labels.scores)[0][labels.is_right])
    lowest = float(np.clip(truths[number - rank], 0, 1))
    return Coverage(coverage=coverage, num_labels=number, least=lowest)


def _candidates(questions: Sequence[AnyQuestion], count: int) -> Iterator[Making]:
    """Yield what makes maps; the first one leaves probabilities as they are."""
    yield lambda _: None
    kind, is_much = questions[0].type, count >= fitting.ENOUGH_FOR_ISOTONIC
    if kind == "choice":
        tops = [False] * (count >= LEAST_OF_TYPE) + [True] * is_much
        yield from (partial(temperature, has_top=has_top) for has_top in tops)
    elif len({len(question.options) for question in questions}) == 1:
        methods: list[Method] = ["platt", "isotonic"] if is_much else ["platt"]
        yield from (partial(tails, method) for method in methods)


def temperature(labels: Labels, has_top: bool = False) -> Temperature:
    """Return the temperature of least negative log-likelihood, between e^-5 and e^5."""
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    with np.errstate(divide="ignore"):
        logs = np.log(labels.scores)
    logs[labels.is_right] = np.maximum(logs[labels.is_right], -700)

    def loss(log_temperature: float) -> float:
        fits = log_softmax(logs / np.exp(log_temperature), axis=1)
        return -float(fits[labels.is_right].mean())

    fit = Temperature(temperature=float(np.exp(minimize_scalar(loss, bounds=(-5, 5)).x)))
    top = fitting.isotonic(likeliest(fit, labels)) if has_top else None
    return fit.model_copy(update={"top": top})


def tails(method: Method, labels: Labels) -> Tails:
    """Return the maps of each P(level >= k). Raises InputError where one does not rise."""
    reached = tails_of(labels.is_right.astype(np.float64)) > 0
    columns = zip(log_odds(labels.scores).T, reached.T, strict=True)
    fits = (replace(labels, scores=odds, is_right=is_so) for odds, is_so in columns)
    return Tails(method=method, tails=tuple(fitting.FITS[method](tail) for tail in fits))
