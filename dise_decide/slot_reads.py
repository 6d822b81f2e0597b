"""The Reads of texts with slots, and what they tell of each slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from dise_core.arrays import Floats, Ids
from dise_core.models.info import ModelInfo
from dise_core.plans.plan import READS_AT_ONCE, Plan, gather
from dise_core.plans.reading import Read
from dise_core.plans.readouts import Readout, TokenLogProbs, TopLogProbs
from dise_decide.slots import SlotText

SlotLabel = tuple[int, int]
"""A slot of a text, and a label of it, by their indices."""


@dataclass(frozen=True, slots=True, eq=False)
class SlotReading:
    """What was read of a slot. means: of each label, the mean log-probability of its
    tokens, in nats. label_mass: the probability of their first tokens, all together.
    argmax_is_label: whether the likeliest first token is one of them.
    """

    means: Floats
    label_mass: float
    argmax_is_label: bool

    @property
    def shares(self) -> Floats:
        """The softmax over the means; equal if no label has any probability."""
        highest = self.means.max()
        weights = np.exp(self.means - highest) if highest > -np.inf else np.ones_like(self.means)
        return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A text to read, and the labels that it answers. context_ids, start: see Read."""

    ids: Ids
    labels: Sequence[SlotLabel]
    context_ids: Ids | None = None
    start: int = 0

    def read(self, positions: Sequence[int], readout: Readout) -> Read:
        where, context = np.array(positions, np.int64), self.context_ids
        return Read(self.ids, where, readout, context_ids=context, start=self.start)


def read_slots(texts: Sequence[SlotText], info: ModelInfo) -> Plan[list[SlotReading]]:
    """Return a plan of the reading of each slot, in order, with few Reads at a time."""
    readings = list[SlotReading]()
    has_one_row = info.block_length is None and not info.is_autoregressive
    rows = 1 if has_one_row else max(sum(len(s.labels) for s in text.slots) for text in texts)
    together = max(1, READS_AT_ONCE // (2 * rows))
    for start in range(0, len(texts), together):
        batch = texts[start : start + together]
        for slots in (yield from gather(*(_read_text(text, info) for text in batch))):
            readings += slots
    return readings


def _read_text(text: SlotText, info: ModelInfo) -> Plan[list[SlotReading]]:
    rows, reads = _rows(text, info), list[Read]()
    for row in rows:
        positions, targets = list[int](), list[int]()
        for slot, label in row.labels:
            start, ids = text.slots[slot].start, text.slots[slot].labels[label]
            positions += range(start, start + len(ids))
            targets += ids
        starts = [text.slots[slot].start for slot in dict(row.labels)]
        reads.append(row.read(positions, TokenLogProbs(np.array(targets, np.int64))))
        reads.append(row.read(starts, TopLogProbs(1)))
    readings = iter((yield reads))
    logprobs, likeliest = dict[SlotLabel, list[float]](), dict[int, int]()
    for row in rows:
        numbers = iter(next(readings).logprobs.tolist())
        for slot, label in row.labels:
            logprobs[slot, label] = [*islice(numbers, len(text.slots[slot].labels[label]))]
        first_ids = next(readings).token_ids[:, 0].tolist()
        likeliest |= zip(dict(row.labels), first_ids, strict=True)
    slot_readings = list[SlotReading]()
    for index, slot_text in enumerate(text.slots):
        firsts, means = dict[int, float](), list[float]()
        for label, ids in enumerate(slot_text.labels):
            values = logprobs[index, label]
            firsts[ids[0]] = values[0]
            means.append(sum(values) / len(values))
        mass = min(1.0, float(np.exp([*firsts.values()]).sum()))
        slot_readings.append(SlotReading(np.array(means), mass, likeliest[index] in firsts))
    return slot_readings


def _rows(text: SlotText, info: ModelInfo) -> list[_Row]:
    """Return a row for the labels that lie in one block, and one for each label that does
    not: its later blocks read its tokens in the earlier ones, never their masks.
    """
    if info.is_autoregressive:
        return _next_token_rows(text)
    start = text.slots[0].start
    grid, within, across = info.blocks(start), list[SlotLabel](), list[_Row]()
    for index, slot in enumerate(text.slots):
        for label, ids in enumerate(slot.labels):
            stop = slot.start + len(ids)
            if grid is None or grid.start_of(slot.start) == grid.start_of(stop - 1):
                within.append((index, label))
                continue
            context = text.ids.copy()
            context[slot.start : stop] = ids
            across.append(_Row(text.ids, [(index, label)], context, start))
    return [*([_Row(text.ids, within, start=start)] if within else []), *across]


def _next_token_rows(text: SlotText) -> list[_Row]:
    """Return a row for each beginning that labels share: each token is predicted from
    those before it alone, so that whatever ends the row makes no difference.
    """
    [slot] = text.slots
    beginnings = dict[tuple[int, ...], list[SlotLabel]]()
    for index, ids in enumerate(slot.labels):
        beginnings.setdefault(ids[:-1], []).append((0, index))
    end = slot.labels[0][0]
    return [_Row(np.append(text.ids, [*ids, end]), labels) for ids, labels in beginnings.items()]
