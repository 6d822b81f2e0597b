"""The Reads of texts with slots, and what they tell of each slot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from dise_core.arrays import Ids
from dise_core.blocks import BlockGrid
from dise_core.decisions import Diagnostics
from dise_core.model import ModelInfo
from dise_core.reading import READS_AT_ONCE, Plan, Read, Readout, TokenLogProbs, TopLogProbs, gather
from dise_core.slots import Slot, SlotText


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a slot.

    labels: the first token of each label. firsts: the log-probability of that token, in nats, and
    means: the mean over the label's tokens. likeliest: the likeliest token at the slot's first
    position.
    """

    labels: tuple[int, ...]
    firsts: tuple[float, ...]
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
    def diagnostics(self) -> Diagnostics:
        """What stands behind the probabilities."""
        firsts = dict(zip(self.labels, map(math.exp, self.firsts), strict=True))
        return Diagnostics(
            label_mass=min(1.0, sum(firsts.values())),
            argmax_is_label=self.likeliest in firsts,
            logprobs=tuple(mean if math.isfinite(mean) else None for mean in self.means),
        )


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


def read_slots(texts: Sequence[SlotText], info: ModelInfo) -> Plan[list[Found]]:
    """Return a plan of what is known of each slot, in order, with a bounded number of Reads at a
    time.
    """
    found = list[Found]()
    most = max(sum(len(slot.spelled.labels) for slot in text.slots) for text in texts)
    has_one_row = info.block_length is None and not info.is_autoregressive
    together = READS_AT_ONCE // 2 if has_one_row else max(1, READS_AT_ONCE // (most + 1))
    for start in range(0, len(texts), together):
        some = texts[start : start + together]
        for slots in (yield from gather(*(_read_text(text, info) for text in some))):
            found += slots
    return found


def _read_text(text: SlotText, info: ModelInfo) -> Plan[list[Found]]:
    rows = _rows(text, info)
    reads = [_labels_read(text, row) for row in rows]
    firsts = _firsts(rows)
    for number, slots in firsts.items():
        starts = [text.slots[slot].start for slot in slots]
        reads.append(rows[number].read(starts, TopLogProbs(1)))
    readings = yield reads
    logprobs = dict[tuple[int, int], list[float]]()
    for row, reading in zip(rows, readings, strict=False):
        numbers = iter(reading.logprobs.tolist())
        for slot, label in row.labels:
            size = len(text.slots[slot].spelled.labels[label])
            logprobs[slot, label] = list(islice(numbers, size))
    likeliest = dict[int, int]()
    for slots, reading in zip(firsts.values(), readings[len(rows) :], strict=True):
        likeliest |= zip(slots, reading.token_ids[:, 0].tolist(), strict=True)
    return [_found(index, slot, logprobs, likeliest) for index, slot in enumerate(text.slots)]


def _labels_read(text: SlotText, row: _Row) -> Read:
    """Return the Read of the tokens of the row's labels."""
    positions, targets = list[int](), list[int]()
    for slot, label in row.labels:
        start, ids = text.slots[slot].start, text.slots[slot].spelled.labels[label]
        positions += range(start, start + len(ids))
        targets += ids
    return row.read(positions, TokenLogProbs(np.array(targets, np.int64)))


def _found(
    index: int,
    slot: Slot,
    logprobs: Mapping[tuple[int, int], list[float]],
    likeliest: Mapping[int, int],
) -> Found:
    labels = slot.spelled.labels
    each = [logprobs[index, label] for label in range(len(labels))]
    return Found(
        tuple(ids[0] for ids in labels),
        tuple(numbers[0] for numbers in each),
        tuple(sum(numbers) / len(numbers) for numbers in each),
        likeliest[index],
    )


def _firsts(rows: Sequence[_Row]) -> dict[int, list[int]]:
    """Return the slots by the index of the first row that answers a label of theirs."""
    seen, firsts = set[int](), dict[int, list[int]]()
    for number, row in enumerate(rows):
        for slot, _ in row.labels:
            if slot not in seen:
                seen.add(slot)
                firsts.setdefault(number, []).append(slot)
    return firsts


def _rows(text: SlotText, info: ModelInfo) -> list[_Row]:
    if info.is_autoregressive:
        return _next_token_rows(text)
    every = [
        (slot, i) for slot, its in enumerate(text.slots) for i in range(len(its.spelled.labels))
    ]
    if info.block_length is None:
        return [_Row(text.ids, None, tuple(every))]
    return _block_rows(text, every, BlockGrid(info.block_length))


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
        _Row(
            np.append(text.ids, [*beginning, labels[0][0]]),
            None,
            tuple((0, index) for index in those),
        )
        for beginning, those in begun.items()
    ]


def _block_rows(text: SlotText, every: Sequence[tuple[int, int]], grid: BlockGrid) -> list[_Row]:
    """Return a row for the labels that lie in one block, and one for each label that does not: its
    later blocks read its tokens in the earlier ones, never their masks.
    """
    within, across = list[tuple[int, int]](), list[_Row]()
    for index, label in every:
        slot = text.slots[index]
        ids = slot.spelled.labels[label]
        stop = slot.start + len(ids)
        if grid.start_of(slot.start) == grid.start_of(stop - 1):
            within.append((index, label))
            continue
        context = text.ids.copy()
        context[slot.start : stop] = ids
        across.append(_Row(text.ids, context, ((index, label),)))
    return [*([_Row(text.ids, None, tuple(within))] if within else []), *across]
