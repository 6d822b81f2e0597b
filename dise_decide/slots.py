"""Questions as texts with slots: masks where the answers stand, and the tokens of each label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from unicodedata import normalize
from weakref import WeakKeyDictionary

import numpy as np

from dise_core.arrays import Ids
from dise_core.errors import InputError
from dise_core.models.predictor import MaskPredictor
from dise_core.models.tokenizer import Message, Tokenizer

MAX_TEXTS, MAX_TOKENS, MAX_LABEL_TOKENS = 2**11, 2**23, 2**15
"""Texts that ask the questions about one input, and the tokens of all, and of all their labels."""

Subject = str | Sequence[Message]
"""What the questions are about: a text, or a conversation."""

LabelIds = Callable[[str, str], tuple[int, ...]]

_remembered: WeakKeyDictionary[MaskPredictor, LabelIds] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as one text shows it. labels: what the model may write, in the order shown; notes:
    of each, when it applies; supports: of each, the options for which it speaks, by their indices.
    """

    instructions: str
    labels: tuple[str, ...]
    notes: tuple[str | None, ...]
    supports: tuple[tuple[int, ...], ...]


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


def with_questions(subject: Subject, asked: Sequence[Asked]) -> Subject:
    """Return the input, followed by the questions with their possible answers: at the end of a
    conversation's last turn if that is the user's, else as a turn of their own.
    """
    if len(asked) == 1:
        text = f"Question: {asked[0].instructions}\nAnswer with one of these: {_answers(asked[0])}"
    else:
        text = "Answer each question with one of its answers, one line for each."
        for number, one in enumerate(asked, 1):
            text += f"\n{number}. {one.instructions}\n   Answers: {_answers(one)}"
    if isinstance(subject, str):
        return f"{subject}\n\n{text}"
    *before, last = subject
    if last["role"] != "user":
        return [*subject, {"role": "user", "content": text}]
    return [*before, {**last, "content": f"{last['content']}\n\n{text}"}]


def _answers(asked: Asked) -> str:
    pairs = zip(asked.labels, asked.notes, strict=True)
    return ", ".join(asked.labels) + "".join(
        f"\n   - {name}: {note}" for name, note in pairs if note
    )


def leads(num_questions: int) -> list[str]:
    """Return what precedes each question's answer where they are answered."""
    if num_questions == 1:
        return ["Answer:"]
    return ["1.", *(f"\n{number}." for number in range(2, num_questions + 1))]


def joined(parts: Sequence[tuple[Ids, Asked]], predictor: MaskPredictor, space: str) -> SlotText:
    """Return the text of parts, int64 [N_i], each followed by the slot of a question. space: what
    stands before a label; where it makes tokens of its own, they precede the slot.

    Raises InputError for a label that the tokenizer cannot write, and for two that are the same
    tokens.
    """
    info, pieces, slots, length = predictor.info, list[Ids](), list[Slot](), 0
    before = predictor.tokenizer.encode(space) if space else np.zeros(0, np.int64)
    for part, asked in parts:
        labels = _label_ids(asked, predictor, space)
        size = len(before)
        if any(len(ids) <= size or ids[:size] != (*before.tolist(),) for ids in labels):
            size = 0
        slot = Slot(length + len(part) + size, tuple(ids[size:] for ids in labels))
        _check(asked, slot, info.special.mask_id)
        masks = 0 if info.is_autoregressive else slot.stop - slot.start
        pieces += [part, before[:size], np.full(masks, info.special.mask_id or 0)]
        length = slot.start + masks
        slots.append(slot)
    return SlotText(np.concatenate(pieces), tuple(slots))


def _label_ids(asked: Asked, predictor: MaskPredictor, space: str) -> list[tuple[int, ...]]:
    """Return each label's tokens. A model's newest ones are remembered, for any thread."""
    make = _remembered.get(predictor)
    if make is None:
        make = lru_cache(1024)(partial(_made, predictor.tokenizer))
        _remembered[predictor] = make
    return [make(space, label) for label in asked.labels]


def _made(tokenizer: Tokenizer, space: str, label: str) -> tuple[int, ...]:
    ids = tokenizer.encode(space + label)
    if len(ids) == 0 or _plain(tokenizer.decode(ids)) != _plain(label):
        raise InputError(f"the model's tokenizer cannot write the label {label!r:.80}", "questions")
    return tuple(ids.tolist())


def _plain(text: str) -> str:
    """Return the text without what tokenizers change: white space, case, forms of characters."""
    return "".join(normalize("NFKC", text).casefold().split())


def _check(asked: Asked, slot: Slot, mask_id: int | None) -> None:
    seen = dict[tuple[int, ...], str]()
    for text, ids in zip(asked.labels, slot.labels, strict=True):
        if mask_id in ids:
            raise InputError(f"the label {text!r:.80} holds the mask token", "questions")
        if ids in seen:
            raise InputError(
                f"the labels {seen[ids]!r:.80} and {text!r:.80} of the question "
                f"{asked.instructions!r:.80} are the same tokens",
                "questions",
            )
        seen[ids] = text


def bounded(texts: Iterable[SlotText]) -> list[SlotText]:
    """Return the texts. Raises InputError once there are too many, or too many tokens in all."""
    kept, num_tokens, num_label_tokens = list[SlotText](), 0, 0
    for text in texts:
        kept.append(text)
        num_tokens += len(text.ids)
        num_label_tokens += sum(len(label) for slot in text.slots for label in slot.labels)
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
