"""Fits calibrations of decisions to labelled answers.

Labels of dise_eval hold them: scores are the model's own shares, float64 [n, K], 0 where a question
has fewer than K options; is_right bool [n, K], true for the truth alone; questions the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dise_core.arrays import Floats
from dise_core.errors import InputError
from dise_core.scoring.calibration import Threshold
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
from dise_eval.calibration import fitting, guarantee
from dise_eval.calibration.fitting import Labels, Method
from dise_eval.calibration.guarantee import Promise, Rule
from dise_eval.statistics.metrics import Rights

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
    labels: Labels, questions: Sequence[AnyQuestion], least: int, promises: Promises
) -> tuple[QuestionFit, Labels]:
    """Return the fit, by the map that does best on inputs left out, and what `events` tells there.
    What is promised is fitted on half of the inputs, and the map on the others.

    Raises InputError for fewer labels than `least`, and for what cannot be promised.
    """
    kind = questions[0].type
    events(kind, labels, *mapped(None, labels.scores)).check(least)
    is_split = promises.risk is not None or promises.coverage is not None
    mine, kept = labels.split(0.5) if is_split else (labels, labels)
    make, held_out = _chosen(
        kind, mine, len({len(question.options) for question in questions}) == 1
    )
    map_, before = make(mine), events(kind, mine, *mapped(None, mine.scores))
    asked = {nameless(question).model_dump_json(): question for question in questions}
    order = np.random.default_rng(0).permutation(len(kept))
    one_each = kept.of(order).first(1)
    fit = QuestionFit(
        question=nameless(questions[0]) if len(asked) == 1 else None,
        map=map_,
        num_labels=len(mine),
        num_inputs=mine.num_questions,
        before=fitting.figures(before.scores, before),
        after=fitting.figures(held_out.scores, held_out),
        threshold=gate(one_each, map_, promises),
        sets=answer_sets(one_each, map_, promises.coverage),
    )
    return fit, held_out


def events(kind: str, labels: Labels, shares: Floats, confidences: Floats) -> Labels:
    """Return the probabilities that figures are about, [n], and whether it is so: of a predicate
    that it is yes, else that the likeliest answer is right.
    """
    if kind == "predicate":
        return Labels(shares[:, 0], labels.is_right[:, 0], labels.questions)
    return Labels(confidences, _is_right(labels, shares), labels.questions)


def _is_right(labels: Labels, shares: Floats) -> Rights:
    return np.take_along_axis(labels.is_right, shares.argmax(axis=1)[:, None], axis=1)[:, 0]


def gate(labels: Labels, map_: Temperature | Tails | None, promises: Promises) -> Threshold | None:
    """Return the threshold of confidences. labels: one of each input, unknown to the map."""
    if promises.risk is None:
        return None
    shares, confidences = mapped(map_, labels.scores)
    sure = Labels(confidences, _is_right(labels, shares), labels.questions)
    return guarantee.threshold_of(promises.rule, sure, promises.risk)


def answer_sets(
    labels: Labels, map_: Temperature | Tails | None, coverage: float | None
) -> Coverage | None:
    """Return what split conformal prediction takes: of the scores 1 - p(truth) of n labels the
    ceil((n + 1) coverage)-th smallest. Raises InputError where n is less. labels: as for `gate`.
    """
    if coverage is None:
        return None
    number = len(labels)
    rank = int(np.ceil((number + 1) * coverage - 1e-9))
    if rank > number:
        raise InputError(
            f"a coverage of {coverage:g} needs labels of {np.ceil(coverage / (1 - coverage)):.0f} "
            f"inputs beside those of the map, not of {number}",
            "coverage",
        )
    truths = np.sort(mapped(map_, labels.scores)[0][labels.is_right])
    least = float(np.clip(truths[number - rank], 0, 1))
    return Coverage(coverage=coverage, num_labels=number, least=least)


def _chosen(kind: str, labels: Labels, is_one_size: bool) -> tuple[Making, Labels]:
    """Return what makes the map of least squared error on inputs left out of its fit, and its
    `events` there. The first of equally good ones wins, which leaves probabilities as they are.
    """
    from sklearn.model_selection import GroupKFold

    splits = GroupKFold(fitting.NUM_FOLDS, shuffle=True, random_state=0)
    best: tuple[float, Making, Labels] | None = None
    for make in _candidates(kind, len(labels), is_one_size):
        shares, confidences = np.empty_like(labels.scores), np.empty(len(labels))
        try:
            for rest, here in splits.split(labels.scores, groups=labels.questions):
                map_ = make(labels.of(rest))
                shares[here], confidences[here] = mapped(map_, labels.scores[here])
            make(labels)
        except InputError:  # a tail does not rise: no candidate
            continue
        told = events(kind, labels, shares, confidences)
        errors = tails_of(shares) - tails_of(labels.is_right.astype(np.float64))
        errors = told.scores - told.is_right if kind == "choice" else errors
        loss = float((errors**2).mean())
        best = (loss, make, told) if best is None or loss < best[0] else best
    assert best is not None
    return best[1], best[2]


def _candidates(kind: str, count: int, is_one_size: bool) -> Iterator[Making]:
    yield lambda _: None
    is_much = count >= fitting.ENOUGH_FOR_ISOTONIC
    if kind == "choice":
        tops = [False] * (count >= LEAST_OF_TYPE) + [True] * is_much
        yield from (partial(temperature, has_top=has_top) for has_top in tops)
    elif is_one_size:
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

    found = Temperature(temperature=float(np.exp(minimize_scalar(loss, bounds=(-5, 5)).x)))
    sure = events("choice", labels, *mapped(found, labels.scores))
    return found.model_copy(update={"top": fitting.isotonic(sure) if has_top else None})


def tails(method: Method, labels: Labels) -> Tails:
    """Return the maps of each P(level >= k). Raises InputError where one does not rise."""
    reached = tails_of(labels.is_right.astype(np.float64)) > 0
    columns = zip(log_odds(labels.scores).T, reached.T, strict=True)
    fits = (replace(labels, scores=odds, is_right=is_so) for odds, is_so in columns)
    return Tails(method=method, tails=tuple(fitting.FITS[method](one) for one in fits))
