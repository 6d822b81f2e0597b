"""Questions as texts with slots: masks where the answers stand, and the tokens of each label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, cast
from unicodedata import normalize

import numpy as np

from dise_core.arrays import Ids
from dise_core.errors import InputError
from dise_core.models.predictor import MaskPredictor
from dise_core.models.tokenizer import Message, Tokenizer

MAX_TEXTS, MAX_TOKENS, MAX_LABEL_TOKENS = 2**11, 2**23, 2**15
"""Texts that ask the questions about one input, and the tokens of all, and of all their labels."""

MOST_REMEMBERED, LONGEST_REMEMBERED = 1024, 4096
"""Results that are remembered, and the characters that each is made of."""

T = TypeVar("T")
Subject = str | Sequence[Message]
"""What the questions are about: a text, or a conversation."""

ASK_ONE = "Answer with one of these"
ASK_ALL = "Answer each question with one of its answers, one line for each."


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as one text shows it. labels: what the model may write, in the order shown; notes:
    of each, when it applies; supports: of each, the options for which it speaks, by their indices.
    """

    instructions: str
    labels: tuple[str, ...]
    notes: tuple[str | None, ...]
    supports: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Spelled:
    """A question's labels as the model writes them: the tokens that precede all of them, int64 [L],
    and each one's own, at least one.
    """

    lead: Ids
    labels: tuple[tuple[int, ...], ...]

    @cached_property
    def length(self) -> int:
        """The length of the slot, in tokens: that of the longest label."""
        return max(len(label) for label in self.labels)


class Memo:
    """What a model's tokenizer made of texts, by the texts: of a question's labels, and of what
    precedes a slot. Once there is too much, all is forgotten. For any thread.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], object] = {}

    def get(self, key: tuple[str, ...], make: Callable[[], T]) -> T:
        """Return what `make` returned for the key, or returns now. Raises what it raises."""
        value = cast("T | None", self._known.get(key))
        if value is None:
            value = make()
            if sum(map(len, key)) <= LONGEST_REMEMBERED:
                if len(self._known) >= MOST_REMEMBERED:
                    self._known.clear()
                self._known[key] = value
        return value


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a question's answer stands in a text: its first position, and the labels' tokens."""

    start: int
    spelled: Spelled


@dataclass(frozen=True, slots=True, eq=False)
class SlotText:
    """A text with its slots, in order. ids: int64 [N], with masks in the slots; the text of a model
    without a mask token ends where its only slot begins.
    """

    ids: Ids
    slots: tuple[Slot, ...]

    @property
    def stop(self) -> int:
        """The first position behind the last slot."""
        return self.slots[-1].start + self.slots[-1].spelled.length

    @property
    def num_slot_tokens(self) -> int:
        return sum(slot.spelled.length for slot in self.slots)

    @property
    def num_label_tokens(self) -> int:
        return sum(len(label) for slot in self.slots for label in slot.spelled.labels)


def wording(questions: Sequence[Asked]) -> str:
    """Return the questions, with their possible answers, as a user asks them."""
    if len(questions) == 1:
        return f"Question: {questions[0].instructions}\n{ASK_ONE}: {_answers(questions[0])}"
    lines = [
        f"{number}. {question.instructions}\n   Answers: {_answers(question)}"
        for number, question in enumerate(questions, 1)
    ]
    return "\n".join([ASK_ALL, *lines])


def _answers(question: Asked) -> str:
    pairs = zip(question.labels, question.notes, strict=True)
    notes = [f"\n   - {label}: {note}" for label, note in pairs if note]
    return ", ".join(question.labels) + "".join(notes)


def with_questions(subject: Subject, text: str) -> Subject:
    """Return the input, followed by the questions: at the end of a conversation's last turn if that
    is the user's, else as a turn of their own.
    """
    if isinstance(subject, str):
        return f"{subject}\n\n{text}"
    *before, last = subject
    if last["role"] != "user":
        return [*subject, {"role": "user", "content": text}]
    return [*before, {**last, "content": f"{last['content']}\n\n{text}"}]


def leads(num_questions: int) -> list[str]:
    """Return what precedes each question's answer where they are answered."""
    if num_questions == 1:
        return ["Answer:"]
    return ["1.", *(f"\n{number}." for number in range(2, num_questions + 1))]


def spell(about: str, texts: Sequence[str], predictor: MaskPredictor, space: str) -> Spelled:
    """Return the tokens of a question's labels. about: what names the question in errors. space:
    what stands between the text before the slot and a label; where it makes tokens of its own, they
    precede the slot.

    Raises InputError for a label that the tokenizer cannot write, and for two that are the same
    tokens.
    """
    tokenizer = predictor.tokenizer
    labels = [_label_ids(space, text, tokenizer) for text in texts]
    lead = tokenizer.encode(space) if space else np.zeros(0, np.int64)
    size = len(lead)
    if not size or any(len(ids) <= size or (ids[:size] != lead).any() for ids in labels):
        lead, size = np.zeros(0, np.int64), 0
    spelled = Spelled(lead, tuple(tuple(ids[size:].tolist()) for ids in labels))
    _check(about, texts, spelled.labels, predictor.info.special.mask_id)
    return spelled


def _label_ids(space: str, label: str, tokenizer: Tokenizer) -> Ids:
    ids = tokenizer.encode(space + label)
    if len(ids) == 0 or _plain(tokenizer.decode(ids)) != _plain(label):
        raise InputError(f"the model's tokenizer cannot write the label {label!r:.80}", "questions")
    return ids


def _plain(text: str) -> str:
    """Return the text without what tokenizers change: white space, case, forms of characters."""
    return "".join(normalize("NFKC", text).casefold().split())


def _check(
    about: str, texts: Sequence[str], labels: Sequence[tuple[int, ...]], mask_id: int | None
) -> None:
    seen = dict[tuple[int, ...], str]()
    for text, ids in zip(texts, labels, strict=True):
        if mask_id in ids:
            raise InputError(f"the label {text!r:.80} holds the mask token", "questions")
        if ids in seen:
            raise InputError(
                f"the labels {seen[ids]!r:.80} and {text!r:.80} of the question {about!r:.80} are "
                "the same tokens",
                "questions",
            )
        seen[ids] = text


def joined(parts: Sequence[Ids], spelled: Sequence[Spelled], mask_id: int | None) -> SlotText:
    """Return the text of parts, each followed by its slot. parts: int64 [N_i]."""
    pieces, slots, length = list[Ids](), list[Slot](), 0
    for part, labels in zip(parts, spelled, strict=True):
        masks = np.full(0 if mask_id is None else labels.length, mask_id or 0)
        length += len(part) + len(labels.lead)
        slots.append(Slot(length, labels))
        pieces += [part, labels.lead, masks]
        length += len(masks)
    return SlotText(np.concatenate(pieces), tuple(slots))


def bounded(texts: Iterable[SlotText]) -> list[SlotText]:
    """Return the texts. Raises InputError once there are too many, or too many tokens in all."""
    kept, num_tokens, num_label_tokens = list[SlotText](), 0, 0
    for text in texts:
        kept.append(text)
        num_tokens += len(text.ids)
        num_label_tokens += text.num_label_tokens
        for number, most, what in (
            (len(kept), MAX_TEXTS, "need more than {} texts"),
            (num_tokens, MAX_TOKENS, "need texts of more than {} tokens in all"),
            (num_label_tokens, MAX_LABEL_TOKENS, "have labels of more than {} tokens in all"),
        ):
            if number > most:
                raise InputError(
                    f"the questions {what.format(most)}; ask fewer, with fewer or shorter options, "
                    "or choose another reading or orders",
                    "questions",
                )
    return kept
