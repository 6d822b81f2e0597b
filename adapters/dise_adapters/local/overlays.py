"""Overlays: tokens that stand in for some of a text's, for each other's eyes only.

A token of an overlay attends to the text as its position may, but sees its own overlay where that
stands; the text sees no overlay. Both kinds of Read beyond the plain ones are made of them: in one
with a context the text is the finished one, and each masked block an overlay; a shadow is an
overlay of one mask. So the tokens of [x_t ; x_0], as block-causal models are trained, follow from
one rule, and only those that an answer depends on run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dise_adapters.families.family import AnswersFor
from dise_core.arrays import Ids
from dise_core.blocks import BlockGrid
from dise_core.model import Attention
from dise_core.reading import Guidance, Read
from dise_core.rows import Row


@dataclass(slots=True, eq=False)
class Overlaid(Row):
    """A text with its overlays as one sequence to run: its token_ids are those of both, int64 [T].

    positions: each token's position in the text, int64 [T]. groups: 0 for the text's tokens, else
    the number of their overlay, int64 [T]. columns: for each of the row's reads, the tokens that
    answer for its positions, int64 [M].
    """

    positions: Ids = field(kw_only=True)
    groups: Ids = field(kw_only=True)
    columns: tuple[Ids, ...] = field(kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class Overlays:
    """The positions and groups of a padded batch, int64 [B, T]. Padding repeats the first token's,
    so that it attends to something.
    """

    positions: Ids
    groups: Ids

    @classmethod
    def of(cls, rows: Sequence[Row], width: int) -> Overlays:
        """Return those of a batch of Overlaid rows, each followed by its unconditional text."""
        found: list[list[Ids]] = [[], []]
        for row in rows:
            assert isinstance(row, Overlaid)
            for lines, given in zip(found, (row.positions, row.groups), strict=True):
                padded = np.append(given, np.full(width - len(given), given[0]))
                lines.extend([padded] * row.num_sequences)
        return cls(*map(np.stack, found))


def in_two_streams(
    row: Row, reads: Sequence[Read], length: int, answers_for: AnswersFor
) -> Overlaid:
    """Return a row with a context, for a model of blocks of `length`, as the tokens that its
    answers depend on: the blocks that it asks about, and the finished text before the last of them.

    Where row i - 1 answers for position i, that of a block's first token belongs to the finished
    block before it, as when the block is written.
    """
    blocks, num_tokens = BlockGrid(length), len(row.token_ids)
    asked = np.unique(np.concatenate([reads[index].positions for index in row.reads]))
    is_first = (asked % length == 0) & (asked > 0) & (answers_for == "next")
    num_finished = blocks.start_of(int(asked[-1]))
    masked = np.unique(asked[~is_first] // length)[:, None] * length + np.arange(length)
    masked = masked[masked < num_tokens]

    def columns(positions: Ids) -> Ids:
        answering = positions if answers_for == "own" else np.maximum(positions - 1, 0)
        among = num_finished + np.searchsorted(masked, answering)
        is_text = (answers_for == "next") & (positions % length == 0) & (positions > 0)
        return np.where(is_text, answering, among)

    def tokens(ids: Ids, context: Ids | None) -> Ids:
        assert context is not None
        return np.append(context[:num_finished], ids[masked])

    guidance = row.guidance
    if guidance is not None:
        guidance = Guidance(tokens(guidance.token_ids, guidance.context_ids), guidance.scale)
    return Overlaid(
        tokens(row.token_ids, row.context_ids),
        row.predictor,
        guidance,
        row.reads,
        positions=np.append(np.arange(num_finished), masked),
        groups=np.append(np.zeros(num_finished, np.int64), masked // length + 1),
        columns=tuple(columns(reads[index].positions) for index in row.reads),
    )


def with_shadows(
    row: Row, reads: Sequence[Read], attention: Attention, answers_for: AnswersFor, mask_id: int
) -> Overlaid:
    """Return a row with shadows as its text and, for each position of its Reads of shadows, a mask
    token. Its plain Reads are answered by the text.

    Where row i - 1 answers for position i, an overlay holds two tokens, the mask at i and a copy of
    token i - 1, which attends to that mask and answers. If position i - 1 does not attend to i
    anyway, as across the border of blocks, the text answers.
    """
    num_tokens = len(row.token_ids)
    shadowed = [reads[index].positions for index in row.reads if reads[index].shadow]
    places: list[int] = []
    groups: list[int] = []
    column = np.zeros(num_tokens, np.int64)
    for group, position in enumerate(np.unique(np.concatenate(shadowed)), 1):
        answering = position if answers_for == "own" else max(position - 1, 0)
        if not attention.allows(np.array([answering]), np.array([position]))[0, 0]:
            column[position] = answering
            continue
        members = {position, answering}
        places += sorted(members, reverse=True)
        groups += [group] * len(members)
        column[position] = num_tokens + len(places) - 1
    added = np.array(places, np.int64)
    is_mask = np.append(True, np.diff(groups) > 0)[: len(added)]

    def tokens(ids: Ids) -> Ids:
        return np.append(ids, np.where(is_mask, mask_id, ids[added]))

    def columns(read: Read) -> Ids:
        if read.shadow:
            return column[read.positions]
        return read.positions if answers_for == "own" else np.maximum(read.positions - 1, 0)

    guidance = row.guidance and Guidance(tokens(row.guidance.token_ids), row.guidance.scale)
    return Overlaid(
        tokens(row.token_ids),
        row.predictor,
        guidance,
        row.reads,
        positions=np.append(np.arange(num_tokens), added),
        groups=np.append(np.zeros(num_tokens, np.int64), np.array(groups, np.int64)),
        columns=tuple(columns(reads[index]) for index in row.reads),
    )
