"""How a question is read: the texts that ask it, and what their answers say of its options.

A question becomes several asked texts. Each text has labels, and each label supports zero or more
of the question's options. An option's support is the mean over the texts that mention it, and the
probabilities are the supports, normalised.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from dise_core.records import json_number
from dise_decide.outputs import Diagnostics
from dise_decide.params import DecisionParams
from dise_decide.questions import Choice, Option, PredicateQuestion, Question, ScoreQuestion
from dise_decide.slot_reads import SlotReading
from dise_decide.slots import Asked

YES_NO, TRUE_FALSE = ("yes", "no"), ("true", "false")

CORRECT = "{question}\nProposed answer: {option}\nIs the proposed answer correct?"
WRONG = "{question}\nProposed answer: {option}\nIs the proposed answer wrong?"
IS_NO = "{question}\nIs the answer to this question no?"


def asked_texts(question: Question, params: DecisionParams) -> Iterator[Asked]:
    """Yield the texts that ask a question."""
    if params.reading == "menu":
        yield from _menus(question, params.orders == "cyclic")
        return
    for asked in _claims(question, params.reading == "each-negated"):
        yield asked
        if params.orders == "cyclic":
            yield Asked(
                asked.instructions, asked.labels[::-1], asked.notes[::-1], asked.supports[::-1]
            )


def _menus(question: Question, is_cyclic: bool) -> Iterator[Asked]:
    """Yield the question with its options in a canonical order, whatever order they came in; if
    cyclic, in each rotation of it. A scale keeps its order, upwards and downwards.
    """
    options, order = question.options, list(range(len(question.options)))
    if isinstance(question, ScoreQuestion):
        orders = [order, order[::-1]]
    else:
        order.sort(key=lambda index: (options[index].label, options[index].description or ""))
        order = list(_polar(question) or order)
        orders = [order[start:] + order[:start] for start in range(len(order))]
    for shown in orders if is_cyclic else orders[:1]:
        labels = tuple(options[index].label for index in shown)
        notes = tuple(_note(options[index]) for index in shown)
        yield Asked(question.instructions, labels, notes, tuple((index,) for index in shown))


def _claims(question: Question, is_negated: bool) -> Iterator[Asked]:
    """Yield what is to be answered with yes or no: the question itself where its options are these,
    else of each option that shows another text whether it is the answer. Each is followed by its
    negation where that is read, too.
    """
    text, polar = question.instructions, _polar(question)
    if polar is not None:
        yes, no = ((index,) for index in polar)
        is_predicate = isinstance(question, PredicateQuestion)
        notes = tuple(o.description if is_predicate else None for o in question.options)
        yield Asked(text, YES_NO, notes, (yes, no))
        if is_negated:
            yield Asked(IS_NO.format(question=text), YES_NO, notes[::-1], (no, yes))
        return
    sharing = dict[str, list[int]]()
    for index, option in enumerate(question.options):
        sharing.setdefault(_shown(option), []).append(index)
    for shown, its in sharing.items():
        asked = CORRECT.format(question=text, option=shown)
        yield Asked(asked, YES_NO, (None, None), (tuple(its), ()))
        if is_negated:
            asked = WRONG.format(question=text, option=shown)
            yield Asked(asked, YES_NO, (None, None), ((), tuple(its)))


def _polar(question: Question) -> tuple[int, int] | None:
    """Return which of two options stands for yes and which for no, if the question is that."""
    if isinstance(question, PredicateQuestion):
        return 0, 1
    shown = [_shown(option).casefold() for option in question.options]
    for yes, no in (YES_NO, TRUE_FALSE):
        if sorted(shown) == sorted((yes, no)):
            return shown.index(yes), shown.index(no)
    return None


def _shown(option: Option | Choice) -> str:
    """Return what tells a reader of the option: when it applies, or its label."""
    return option.description or option.label


def _note(option: Option | Choice) -> str | None:
    """Return when an option applies, where that says more than its label."""
    note = option.description
    return None if note is None or note.casefold() == option.label.casefold() else note


def combined(
    question: Question, params: DecisionParams, slots: Iterator[SlotReading]
) -> tuple[list[float], Diagnostics]:
    """Return the probabilities of a question's options, all alike where none has any support, and
    what stands behind them. slots: what is known of those of its texts, the next ones.
    """
    texts, size = list(asked_texts(question, params)), len(question.options)
    readings = list(islice(slots, len(texts)))
    supports, logprobs, mentions = np.zeros(size), np.zeros(size), np.zeros(size)
    for text, reading in zip(texts, readings, strict=True):
        for indices, share, mean in zip(text.supports, reading.shares, reading.means, strict=True):
            supports[[*indices]] += share / max(1, len(indices))
            logprobs[[*indices]] += mean
            mentions[[*indices]] += 1
    supports /= mentions
    total = supports.sum()
    shares = supports / total if total > 0 else np.full(size, 1 / size)
    return shares.tolist(), Diagnostics(
        label_mass=sum(reading.label_mass for reading in readings) / len(readings),
        argmax_is_label=all(reading.argmax_is_label for reading in readings),
        logprobs=tuple(map(json_number, (logprobs / mentions).tolist())),
        reading=params.reading,
        passes=len(texts),
        confidence=params.confidence,
    )
