"""The Reads of texts with slots, and what they tell of each slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from dise_core.arrays import Floats, Ids
from dise_core.blocks import BlockGrid
from dise_core.models.info import ModelInfo
from dise_core.plans.plan import READS_AT_ONCE, Plan, gather
from dise_core.plans.reading import Read
from dise_core.plans.readouts import TokenLogProbs, TopLogProbs
from dise_decide.slots import Slot, SlotText

Label = tuple[int, ...]
"""A label's tokens."""


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


class _Row(NamedTuple):
    """A text to read, and the labels of a slot that it answers. context_ids: see Read."""

    ids: Ids
    labels: Sequence[Label]
    context_ids: Ids | None = None


def read_slots(texts: Sequence[SlotText], info: ModelInfo) -> Plan[list[SlotReading]]:
    """Return a plan of the reading of each slot, in order, with few Reads at a time."""
    readings = list[SlotReading]()
    has_one_row = info.block_length is None and not info.is_autoregressive
    rows = 1 if has_one_row else max(sum(len(s.labels) for s in text.slots) for text in texts)
    together = max(1, READS_AT_ONCE // (2 * rows))
    for start in range(0, len(texts), together):
        slots = ((text, slot) for text in texts[start : start + together] for slot in text.slots)
        readings += yield from gather(*(_read_slot(*pair, info) for pair in slots))
    return readings


def _read_slot(text: SlotText, slot: Slot, info: ModelInfo) -> Plan[SlotReading]:
    rows, reads = _rows(text, slot, info), list[Read]()
    for row in rows:
        positions = [slot.start + index for label in row.labels for index in range(len(label))]
        targets = TokenLogProbs(np.array([token for label in row.labels for token in label]))
        reads.append(Read(row.ids, np.array(positions), targets, context_ids=row.context_ids))
    first, start = rows[0], np.array([slot.start])
    reads.append(Read(first.ids, start, TopLogProbs(1), context_ids=first.context_ids))
    *answers, likeliest = yield reads
    logprobs = dict[Label, list[float]]()
    for row, answer in zip(rows, answers, strict=True):
        numbers = iter(answer.logprobs.tolist())
        logprobs |= {label: [*islice(numbers, len(label))] for label in row.labels}
    means = [sum(logprobs[label]) / len(label) for label in slot.labels]
    firsts = {label[0]: logprobs[label][0] for label in slot.labels}
    mass = min(1.0, float(np.exp([*firsts.values()]).sum()))
    return SlotReading(np.array(means), mass, int(likeliest.token_ids[0, 0]) in firsts)


def _rows(text: SlotText, slot: Slot, info: ModelInfo) -> list[_Row]:
    """Return a row for the labels that lie in one block, which the text's slots share,
    and one for each label that does not: its later blocks read its tokens in the earlier
    ones, never their masks.
    """
    if info.is_autoregressive:
        return _next_token_rows(text, slot)
    if info.block_length is None:
        return [_Row(text.ids, slot.labels)]
    border = BlockGrid(info.block_length).start_of(slot.start) + info.block_length
    within = [label for label in slot.labels if slot.start + len(label) <= border]
    rows = [_Row(text.ids, within)] if within else []
    for label in slot.labels:
        if slot.start + len(label) > border:
            context = text.ids.copy()
            context[slot.start : slot.start + len(label)] = label
            rows.append(_Row(text.ids, [label], context))
    return rows


def _next_token_rows(text: SlotText, slot: Slot) -> list[_Row]:
    """Return a row for each beginning that labels share: each token is predicted from
    those before it alone, so that whatever ends the row makes no difference.
    """
    beginnings = dict[Label, list[Label]]()
    for label in slot.labels:
        beginnings.setdefault(label[:-1], []).append(label)
    end = slot.labels[0][0]
    return [_Row(np.append(text.ids, [*ids, end]), labels) for ids, labels in beginnings.items()]
