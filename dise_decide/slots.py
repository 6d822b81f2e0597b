"""Questions as texts with slots: masks for the answers, and the tokens of each label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple
from unicodedata import normalize
from weakref import WeakKeyDictionary

import numpy as np

from dise_core.arrays import Ids
from dise_core.errors import InputError
from dise_core.models.predictor import MaskPredictor
from dise_core.models.tokenizer import Message, Tokenizer

LIMITS = {"texts": 2**11, "tokens": 2**23, "tokens of labels": 2**15}
"""What the questions about one input may need in all."""

Subject = str | Sequence[Message]
"""What the questions are about: a text, or a conversation."""

_remembered: WeakKeyDictionary[MaskPredictor, Callable[[str, str], tuple[int, ...]]] = (
    WeakKeyDictionary()
)


class ShownAnswer(NamedTuple):
    """A possible answer as a text shows it: what the model writes, when it applies, and
    the options of the question for which it speaks, by their indices.
    """

    label: str
    note: str | None
    options: tuple[int, ...]


class ShownQuestion(NamedTuple):
    """A question as one text shows it, with its possible answers in order."""

    instructions: str
    answers: tuple[ShownAnswer, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where an answer stands in a text: its first position, and each label's tokens."""

    start: int
    labels: tuple[tuple[int, ...], ...]

    @property
    def stop(self) -> int:
        return self.start + max(map(len, self.labels))


@dataclass(frozen=True, slots=True, eq=False)
class SlotText:
    """A text with its slots, in order. ids: int64 [N], with masks in the slots; the text
    of a model without a mask token ends where its only slot begins.
    """

    ids: Ids
    slots: tuple[Slot, ...]

    @property
    def stop(self) -> int:
        """The first position behind the last slot."""
        return self.slots[-1].stop

    @property
    def num_slot_tokens(self) -> int:
        return sum(slot.stop - slot.start for slot in self.slots)

    @property
    def num_masks(self) -> int:
        return sum(min(slot.stop, len(self.ids)) - slot.start for slot in self.slots)


def with_questions(subject: Subject, questions: Sequence[ShownQuestion]) -> Subject:
    """Return the input, followed by the questions with their possible answers: at the end
    of a conversation's last turn if that is the user's, else as a turn of their own.
    """
    if len(questions) == 1:
        [question] = questions
        text = f"Question: {question.instructions}\nAnswer with one of these: {_menu(question)}"
    else:
        text = "Answer each question with one of its answers, one line for each."
        for number, question in enumerate(questions, 1):
            text += f"\n{number}. {question.instructions}\n   Answers: {_menu(question)}"
    if isinstance(subject, str):
        return f"{subject}\n\n{text}"
    *before, turn = subject
    if turn["role"] != "user":
        return [*subject, {"role": "user", "content": text}]
    return [*before, {**turn, "content": f"{turn['content']}\n\n{text}"}]


def _menu(question: ShownQuestion) -> str:
    notes = (f"\n   - {label}: {note}" for label, note, _ in question.answers if note)
    return ", ".join(answer.label for answer in question.answers) + "".join(notes)


def leads(num_questions: int) -> list[str]:
    """Return what precedes each question's answer where they are answered."""
    if num_questions == 1:
        return ["Answer:"]
    return ["1.", *(f"\n{number}." for number in range(2, num_questions + 1))]


def join(
    parts: Sequence[Ids], questions: Sequence[ShownQuestion], predictor: MaskPredictor, space: str
) -> SlotText:
    """Return the text of parts, int64 [N_i], each followed by the slot of a question.
    space: what stands before a label; where it makes tokens of its own, they precede the
    slot.

    Raises InputError for a label that the tokenizer cannot write, and for two that are
    the same tokens.
    """
    info, pieces, slots, length = predictor.info, list[Ids](), list[Slot](), 0
    spaces = tuple(predictor.tokenizer.encode(space).tolist()) if space else ()
    for part, question in zip(parts, questions, strict=True):
        labels, size = _labels(question, predictor, space), len(spaces)
        if any(len(ids) <= size or ids[:size] != spaces for ids in labels):
            size = 0
        slot = Slot(length + len(part) + size, tuple(ids[size:] for ids in labels))
        masks = 0 if info.is_autoregressive else slot.stop - slot.start
        before = np.array(spaces[:size], np.int64)
        pieces += [part, before, np.full(masks, info.special.mask_id or 0)]
        length = slot.start + masks
        slots.append(slot)
    return SlotText(np.concatenate(pieces), tuple(slots))


def _labels(question: ShownQuestion, predictor: MaskPredictor, space: str) -> list[tuple[int, ...]]:
    """Return each label's tokens, which differ."""
    labels = dict[tuple[int, ...], str]()
    for label, _, _ in question.answers:
        ids = _label_ids(predictor, space, label)
        if predictor.info.special.mask_id in ids:
            raise InputError(f"the label {label!r:.80} holds the mask token", "questions")
        if ids in labels:
            raise InputError(
                f"the labels {labels[ids]!r:.80} and {label!r:.80} of the question "
                f"{question.instructions!r:.80} are the same tokens",
                "questions",
            )
        labels[ids] = label
    return [*labels]


def _label_ids(predictor: MaskPredictor, space: str, label: str) -> tuple[int, ...]:
    """Return a label's tokens. The newest are kept as long as the model lives."""
    make = _remembered.get(predictor)
    if make is None:
        make = lru_cache(1024)(partial(_encode, predictor.tokenizer))
        _remembered[predictor] = make
    return make(space, label)


def _encode(tokenizer: Tokenizer, space: str, label: str) -> tuple[int, ...]:
    ids = tokenizer.encode(space + label)
    if len(ids) == 0 or _plain(tokenizer.decode(ids)) != _plain(label):
        raise InputError(f"the model's tokenizer cannot write the label {label!r:.80}", "questions")
    return tuple(ids.tolist())


def _plain(text: str) -> str:
    """Return the text without what tokenizers change: space, case, character forms."""
    return "".join(normalize("NFKC", text).casefold().split())


def collect(texts: Iterable[SlotText]) -> list[SlotText]:
    """Return the texts. Raises InputError once they need more than LIMITS."""
    collected, need = list[SlotText](), Counter[str]()
    for text in texts:
        collected.append(text)
        num_label_tokens = sum(len(label) for slot in text.slots for label in slot.labels)
        need.update({"texts": 1, "tokens": len(text.ids), "tokens of labels": num_label_tokens})
        for unit, limit in LIMITS.items():
            if need[unit] > limit:
                raise InputError(
                    f"the questions need more than {limit} {unit}; ask fewer, with fewer or "
                    "shorter options, or choose another reading",
                    "questions",
                )
    return collected
