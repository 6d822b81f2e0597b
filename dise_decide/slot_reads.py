"""The Reads of texts with slots, and what they tell of each slot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from dise_core.arrays import Ids
from dise_core.blocks import BlockGrid
from dise_core.models.info import ModelInfo
from dise_core.plans.plan import READS_AT_ONCE, Plan, gather
from dise_core.plans.reading import Read
from dise_core.plans.readouts import Readout, TokenLogProbs, TopLogProbs
from dise_decide.slots import Slot, SlotText


@dataclass(frozen=True, slots=True)
class SlotReading:
    """What is known of a slot.

    firsts: the log-probability of each first token of a label, in nats; means: of each label, the
    mean over its tokens. likeliest: the likeliest token at the slot's first position.
    """

    firsts: dict[int, float]
    means: tuple[float, ...]
    likeliest: int

    @property
    def probabilities(self) -> list[float]:
        """The softmax over the labels' means; all alike where the model gives none of them any."""
        highest = max(self.means)
        is_any = highest > -math.inf
        weights = [math.exp(mean - highest) if is_any else 1.0 for mean in self.means]
        total = sum(weights)
        return [weight / total for weight in weights]

    @property
    def label_mass(self) -> float:
        """The probability of the labels' first tokens, all together."""
        return min(1.0, sum(map(math.exp, self.firsts.values())))

    @property
    def argmax_is_label(self) -> bool:
        return self.likeliest in self.firsts


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A text as the model reads it, and the labels that it answers: (slot, label) by their indices.
    context_ids: see Read.
    """

    ids: Ids
    context_ids: Ids | None
    labels: tuple[tuple[int, int], ...]

    def read(self, positions: Sequence[int], readout: Readout) -> Read:
        where = np.array(positions, np.int64)
        return Read(self.ids, where, readout, context_ids=self.context_ids)


def read_slots(texts: Sequence[SlotText], info: ModelInfo) -> Plan[list[SlotReading]]:
    """Return a plan of what is known of each slot, in order, with a bounded number of Reads at a
    time.
    """
    readings = list[SlotReading]()
    most = max(sum(len(slot.spelled.labels) for slot in text.slots) for text in texts)
    has_one_row = info.block_length is None and not info.is_autoregressive
    together = READS_AT_ONCE // 2 if has_one_row else max(1, READS_AT_ONCE // (most + 1))
    for start in range(0, len(texts), together):
        some = texts[start : start + together]
        for slots in (yield from gather(*(_read_text(text, info) for text in some))):
            readings += slots
    return readings


def _read_text(text: SlotText, info: ModelInfo) -> Plan[list[SlotReading]]:
    rows = _rows(text, info)
    firsts = _firsts(rows)
    starts = {
        number: [text.slots[slot].start for slot in slots] for number, slots in firsts.items()
    }
    readings = yield [
        *(_labels_read(text, row) for row in rows),
        *(rows[number].read(positions, TopLogProbs(1)) for number, positions in starts.items()),
    ]
    logprobs: list[dict[int, list[float]]] = [{} for _ in text.slots]
    for row, reading in zip(rows, readings, strict=False):
        numbers = iter(reading.logprobs.tolist())
        for slot, label in row.labels:
            size = len(text.slots[slot].spelled.labels[label])
            logprobs[slot][label] = list(islice(numbers, size))
    likeliest = dict[int, int]()
    for slots, reading in zip(firsts.values(), readings[len(rows) :], strict=True):
        likeliest |= zip(slots, reading.token_ids[:, 0].tolist(), strict=True)
    return [
        _slot_reading(slot, logprobs[index], likeliest[index])
        for index, slot in enumerate(text.slots)
    ]


def _slot_reading(slot: Slot, logprobs: Mapping[int, list[float]], likeliest: int) -> SlotReading:
    """logprobs: of the tokens of each label, by its index."""
    labels = [(ids[0], logprobs[index]) for index, ids in enumerate(slot.spelled.labels)]
    firsts = {first: numbers[0] for first, numbers in labels}
    means = tuple(sum(numbers) / len(numbers) for _, numbers in labels)
    return SlotReading(firsts, means, likeliest)


def _labels_read(text: SlotText, row: _Row) -> Read:
    """Return the Read of the tokens of the row's labels."""
    positions, targets = list[int](), list[int]()
    for slot, label in row.labels:
        start, ids = text.slots[slot].start, text.slots[slot].spelled.labels[label]
        positions += range(start, start + len(ids))
        targets += ids
    return row.read(positions, TokenLogProbs(np.array(targets, np.int64)))


def _firsts(rows: Sequence[_Row]) -> dict[int, list[int]]:
    """Return the slots by the index of the first row that answers a label of theirs."""
    rows_of = dict[int, int]()
    for number, row in enumerate(rows):
        for slot, _ in row.labels:
            rows_of.setdefault(slot, number)
    firsts = dict[int, list[int]]()
    for slot, number in rows_of.items():
        firsts.setdefault(number, []).append(slot)
    return firsts


def _rows(text: SlotText, info: ModelInfo) -> list[_Row]:
    """Return a row for the labels that lie in one block, and one for each label that does not: its
    later blocks read its tokens in the earlier ones, never their masks.
    """
    if info.is_autoregressive:
        return _next_token_rows(text)
    grid = None if info.block_length is None else BlockGrid(info.block_length)
    within, across = list[tuple[int, int]](), list[_Row]()
    for index, slot in enumerate(text.slots):
        for label, ids in enumerate(slot.spelled.labels):
            stop = slot.start + len(ids)
            if grid is None or grid.start_of(slot.start) == grid.start_of(stop - 1):
                within.append((index, label))
                continue
            context = text.ids.copy()
            context[slot.start : stop] = ids
            across.append(_Row(text.ids, context, ((index, label),)))
    return [*([_Row(text.ids, None, tuple(within))] if within else []), *across]


def _next_token_rows(text: SlotText) -> list[_Row]:
    """Return a row for each beginning that labels share: each token is predicted from those before
    it alone, so that whatever ends the row makes no difference.
    """
    [slot] = text.slots
    labels = slot.spelled.labels
    begun = dict[tuple[int, ...], list[int]]()
    for index, label in enumerate(labels):
        begun.setdefault(label[:-1], []).append(index)
    return [
        _Row(np.append(text.ids, [*ids, labels[0][0]]), None, tuple((0, index) for index in those))
        for ids, those in begun.items()
    ]
