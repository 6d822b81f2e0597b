"""Fits calibrations of decisions to labelled answers.

Labels hold them: scores are the model's own shares, float64 [n, K], 0 where a question
has fewer than K options; is_right bool [n, K], true for the truth alone; questions the
inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from dise_eval.calibration import fitting, making
from dise_eval.calibration.fitting import Labels, Making, Method
from dise_eval.calibration.making import Promises

LEAST_OF_TYPE = 100
"""Labels for a type of questions, and for a temperature."""

Sharpening = Temperature | Tails | None


def fitted(
    labels: Labels, questions: Sequence[AnyQuestion], min_labels: int, promises: Promises
) -> tuple[QuestionFit, Labels]:
    """Return the fit, by the map of least Brier score on inputs left out, and the
    `events` there. What is promised is fitted on half of the inputs, and the map on the
    others.

    Raises InputError for fewer labels than `min_labels`, and for what cannot be promised.
    """
    outcomes = partial(events, questions[0].type)
    outcomes(None, labels).check(min_labels)

    def makings(labels: Labels) -> Iterator[Making[Sharpening]]:
        outcomes(None, labels).check(1)
        return _candidates(questions, len(labels))

    def sure(map_: Sharpening, labels: Labels) -> Labels:
        return likeliest(map_, _one_each(labels))

    found, coverage = making.fit(labels, makings, outcomes, promises, sure), promises.coverage
    plain = outcomes(None, found.labels)
    distinct = {nameless(question).model_dump_json() for question in questions}
    fit = QuestionFit(
        type=questions[0].type,
        question=nameless(questions[0]) if len(distinct) == 1 else None,
        map=found.map,
        num_labels=len(found.labels),
        num_inputs=found.labels.num_questions,
        before=fitting.figures(plain.scores, plain),
        after=fitting.figures(found.held_out.scores, found.held_out),
        threshold=found.threshold,
        sets=answer_sets(_one_each(found.promised), found.map, coverage) if coverage else None,
    )
    return fit, found.held_out


def joined(parts: Sequence[Labels]) -> Labels:
    """Return the labels of all."""
    fields = ((part.scores, part.is_right, part.questions) for part in parts)
    return Labels(*map(np.concatenate, zip(*fields, strict=True)))


def _one_each(labels: Labels) -> Labels:
    """Return one answer of each input, drawn."""
    return labels.of(np.random.default_rng(0).permutation(len(labels))).one_each()


def likeliest(map_: Sharpening, labels: Labels) -> Labels:
    """Return the confidence in each likeliest answer, [n], and whether that is right."""
    shares, confidences = mapped(map_, labels.scores)
    is_right = np.take_along_axis(labels.is_right, shares.argmax(axis=1)[:, None], axis=1)[:, 0]
    return Labels(confidences, is_right, labels.questions)


def events(kind: str, map_: Sharpening, labels: Labels) -> Labels:
    """Return the probabilities that figures are about, [n], and whether it is so: of a
    predicate that it is yes, else that the likeliest answer is right.
    """
    if kind != "predicate":
        return likeliest(map_, labels)
    return Labels(mapped(map_, labels.scores)[0][:, 0], labels.is_right[:, 0], labels.questions)


def answer_sets(labels: Labels, map_: Sharpening, coverage: float) -> Coverage:
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


def _candidates(questions: Sequence[AnyQuestion], count: int) -> Iterator[Making[Sharpening]]:
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
