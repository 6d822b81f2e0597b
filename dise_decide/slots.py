"""Questions as texts with slots: masks where the answers stand, and the tokens of each label."""

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
    """A possible answer as a text shows it: what the model writes, when it applies, and the options
    of the question for which it speaks, by their indices.
    """

    label: str
    note: str | None
    options: tuple[int, ...]


class Asked(NamedTuple):
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
    """A text with its slots, in order. ids: int64 [N], with masks in the slots; the text of a model
    without a mask token ends where its only slot begins.
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


def with_questions(subject: Subject, asked: Sequence[Asked]) -> Subject:
    """Return the input, followed by the questions with their possible answers: at the end of a
    conversation's last turn if that is the user's, else as a turn of their own.
    """
    if len(asked) == 1:
        text = f"Question: {asked[0].instructions}\nAnswer with one of these: {_menu(asked[0])}"
    else:
        text = "Answer each question with one of its answers, one line for each."
        for number, one in enumerate(asked, 1):
            text += f"\n{number}. {one.instructions}\n   Answers: {_menu(one)}"
    if isinstance(subject, str):
        return f"{subject}\n\n{text}"
    *before, last = subject
    if last["role"] != "user":
        return [*subject, {"role": "user", "content": text}]
    return [*before, {**last, "content": f"{last['content']}\n\n{text}"}]


def _menu(asked: Asked) -> str:
    notes = (f"\n   - {label}: {note}" for label, note, _ in asked.answers if note)
    return ", ".join(answer.label for answer in asked.answers) + "".join(notes)


def leads(num_questions: int) -> list[str]:
    """Return what precedes each question's answer where they are answered."""
    if num_questions == 1:
        return ["Answer:"]
    return ["1.", *(f"\n{number}." for number in range(2, num_questions + 1))]


def joined(
    parts: Sequence[Ids], asked: Sequence[Asked], predictor: MaskPredictor, space: str
) -> SlotText:
    """Return the text of parts, int64 [N_i], each followed by the slot of a question. space: what
    stands before a label; where it makes tokens of its own, they precede the slot.

    Raises InputError for a label that the tokenizer cannot write, and for two that are the same
    tokens.
    """
    info, pieces, slots, length = predictor.info, list[Ids](), list[Slot](), 0
    spaces = tuple(predictor.tokenizer.encode(space).tolist()) if space else ()
    for part, one in zip(parts, asked, strict=True):
        labels, size = _labels(one, predictor, space), len(spaces)
        if any(len(ids) <= size or ids[:size] != spaces for ids in labels):
            size = 0
        slot = Slot(length + len(part) + size, tuple(ids[size:] for ids in labels))
        masks = 0 if info.is_autoregressive else slot.stop - slot.start
        before = np.array(spaces[:size], np.int64)
        pieces += [part, before, np.full(masks, info.special.mask_id or 0)]
        length = slot.start + masks
        slots.append(slot)
    return SlotText(np.concatenate(pieces), tuple(slots))


def _labels(asked: Asked, predictor: MaskPredictor, space: str) -> list[tuple[int, ...]]:
    """Return each label's tokens, which differ."""
    labels = dict[tuple[int, ...], str]()
    for label, _, _ in asked.answers:
        ids = _label_ids(predictor, space, label)
        if predictor.info.special.mask_id in ids:
            raise InputError(f"the label {label!r:.80} holds the mask token", "questions")
        if ids in labels:
            raise InputError(
                f"the labels {labels[ids]!r:.80} and {label!r:.80} of the question "
                f"{asked.instructions!r:.80} are the same tokens",
                "questions",
            )
        labels[ids] = label
    return [*labels]


def _label_ids(predictor: MaskPredictor, space: str, label: str) -> tuple[int, ...]:
    """Return a label's tokens. A model's newest ones are remembered as long as the model lives."""
    make = _remembered.get(predictor)
    if make is None:
        make = lru_cache(1024)(partial(_made, predictor.tokenizer))
        _remembered[predictor] = make
    return make(space, label)


def _made(tokenizer: Tokenizer, space: str, label: str) -> tuple[int, ...]:
    ids = tokenizer.encode(space + label)
    if len(ids) == 0 or _plain(tokenizer.decode(ids)) != _plain(label):
        raise InputError(f"the model's tokenizer cannot write the label {label!r:.80}", "questions")
    return tuple(ids.tolist())


def _plain(text: str) -> str:
    """Return the text without what tokenizers change: white space, case, forms of characters."""
    return "".join(normalize("NFKC", text).casefold().split())


def bounded(texts: Iterable[SlotText]) -> list[SlotText]:
    """Return the texts. Raises InputError once they need more than LIMITS."""
    kept, need = list[SlotText](), Counter[str]()
    for text in texts:
        kept.append(text)
        num_label_tokens = sum(len(label) for slot in text.slots for label in slot.labels)
        need.update({"texts": 1, "tokens": len(text.ids), "tokens of labels": num_label_tokens})
        for what, most in LIMITS.items():
            if need[what] > most:
                raise InputError(
                    f"the questions need more than {most} {what}; ask fewer, with fewer or shorter "
                    "options, or choose another reading or orders",
                    "questions",
                )
    return kept
