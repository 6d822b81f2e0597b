"""How a question is read: the texts that ask it, and what their labels say of its options,
as docs/decisions.md has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from dise_core.records import json_number
from dise_decide.outputs import Diagnostics, Finding
from dise_decide.params import DecisionParams
from dise_decide.questions import Choice, Option, PredicateQuestion, Question, ScoreQuestion
from dise_decide.slot_reads import SlotReading
from dise_decide.slots import ShownAnswer, ShownQuestion

YES_NO, TRUE_FALSE = ("yes", "no"), ("true", "false")

CORRECT = "{question}\nProposed answer: {option}\nIs the proposed answer correct?"

Side = tuple[str | None, tuple[int, ...]]
"""When yes, or no, applies, and the options for which it speaks."""


def asked_texts(question: Question, params: DecisionParams) -> Iterator[ShownQuestion]:
    """Yield the texts that ask a question."""
    if params.reading == "menu":
        yield _menu(question)
        return
    for claim, yes, no in _claims(question):
        yield ShownQuestion(claim, (ShownAnswer("yes", *yes), ShownAnswer("no", *no)))


def _menu(question: Question) -> ShownQuestion:
    """Return the question with its options in a canonical order, whatever order they came
    in. A scale keeps its order.
    """
    options, order = question.options, list(range(len(question.options)))
    if not isinstance(question, ScoreQuestion):
        order.sort(key=lambda index: (options[index].label, options[index].description or ""))
        order = list(_polar(question) or order)
    answers = (ShownAnswer(options[i].label, _note(options[i]), (i,)) for i in order)
    return ShownQuestion(question.instructions, tuple(answers))


def _claims(question: Question) -> Iterator[tuple[str, Side, Side]]:
    """Yield claims to be answered with yes or no, and what yes and no say of the options:
    the question itself if its options are yes and no, else for each text that options
    show, whether that is the answer.
    """
    text, polar = question.instructions, _polar(question)
    if polar is not None:
        is_predicate = isinstance(question, PredicateQuestion)
        notes = (_side_note(o) if is_predicate else None for o in question.options)
        yes, no = ((note, (index,)) for note, index in zip(notes, polar, strict=True))
        yield text, yes, no
        return
    sharing = dict[str, tuple[int, ...]]()
    for index, option in enumerate(question.options):
        meaning = _meaning(option)
        sharing[meaning] = (*sharing.get(meaning, ()), index)
    for meaning, indices in sharing.items():
        yield CORRECT.format(question=text, option=meaning), (None, indices), (None, ())


def _polar(question: Question) -> tuple[int, int] | None:
    """Return which of two options is yes and which is no, if they are that."""
    if isinstance(question, PredicateQuestion):
        return 0, 1
    meanings = [_meaning(option).casefold() for option in question.options]
    for yes, no in (YES_NO, TRUE_FALSE):
        if sorted(meanings) == sorted((yes, no)):
            return meanings.index(yes), meanings.index(no)
    return None


def _meaning(option: Option | Choice) -> str:
    """Return when the option applies, or else its label."""
    return option.description or option.label


def _side_note(option: Option | Choice) -> str | None:
    """Return what "yes" or "no" means, unless the label says it."""
    is_plain = option.label.casefold() in {*YES_NO, *TRUE_FALSE}
    return option.description or (None if is_plain else option.label)


def _note(option: Option | Choice) -> str | None:
    """Return when an option applies, where that says more than its label."""
    note = option.description
    return None if note is None or note.casefold() == option.label.casefold() else note


def combine(question: Question, params: DecisionParams, slots: Iterator[SlotReading]) -> Finding:
    """Return the probabilities of a question's options, and their diagnostics. Without
    any support they are equal. slots: the next readings are those of its texts.
    """
    texts, size = list(asked_texts(question, params)), len(question.options)
    readings = list(islice(slots, len(texts)))
    supports, logprobs, mentions = np.zeros(size), np.zeros(size), np.zeros(size)
    for text, reading in zip(texts, readings, strict=True):
        for answer, share, mean in zip(text.answers, reading.shares, reading.means, strict=True):
            indices = [*answer.options]
            supports[indices] += share / max(1, len(indices))
            logprobs[indices] += mean
            mentions[indices] += 1
    supports /= mentions
    total = supports.sum()
    shares = (supports / total if total > 0 else np.full(size, 1 / size)).tolist()
    diagnostics = Diagnostics(
        label_mass=sum(reading.label_mass for reading in readings) / len(readings),
        argmax_is_label=all(reading.argmax_is_label for reading in readings),
        logprobs=tuple(map(json_number, (logprobs / mentions).tolist())),
        reading=params.reading,
        passes=len(texts),
        confidence=params.confidence,
    )
    return Finding(shares, diagnostics.confidence_in(shares), diagnostics)
