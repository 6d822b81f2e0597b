"""How rows are laid out as runs: flat sequences of tokens, each with its position in the text.

A text runs whole; or as a window against the cached keys and values of the rest; or with overlays,
extra tokens appended to the sequence, each at the position of one of the text's. An overlay sees
the text as its positions may, with itself in place of the tokens there; the text sees none. In a
Read with a context the text is the finished one, and each masked block an overlay; a shadow is an
overlay of one mask. So the tokens of [x_t ; x_0], as block-causal models are trained, follow from
one rule, and only those that an answer depends on run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dise_adapters.families.family import AnswersFor
from dise_adapters.local.decoder.kv_cache import KVCache
from dise_core import Attention, BlockCausal, CacheHint, Causal, Ids, Read
from dise_core.blocks import BlockGrid
from dise_core.models.predictor import Ability
from dise_core.plans.rows import Row, distinct_rows

LEAST_SHARED = 64
"""The fewest tokens whose keys and values a new text adopts: for fewer, a copy and a later pass
cost more than they save.
"""


@dataclass(slots=True, eq=False)
class Run:
    """What is run of a row.

    token_ids: the tokens, int64 [T], of the text and then, with guidance, of the unconditional one.
    columns: for each Read of the row, the tokens that answer for its positions, int64 [M].
    num_keys: how many keys each token may attend to. first: the first token's position in the text;
    the others follow it, but for overlays. is_window: whether the keys are cached ones. positions:
    each token's, int64 [T], and groups: 0 for tokens of the text, else the number of their overlay,
    int64 [T]; None without overlays.
    """

    row: Row
    token_ids: tuple[Ids, ...]
    columns: Sequence[Ids]
    num_keys: int
    first: int = 0
    is_window: bool = False
    positions: Ids | None = None
    groups: Ids | None = None

    @property
    def length(self) -> int:
        return len(self.token_ids[0])


class Layout:
    """Lays rows out for one model."""

    def __init__(
        self,
        attention: Attention,
        answers_for: AnswersFor = "own",
        room: KVCache | None = None,
        mask_id: int | None = None,
    ) -> None:
        """room: the KV cache; None for a model without one. mask_id: the mask token, if any."""
        self.attention, self.room, self._mask_id = attention, room, mask_id
        self._shift = 0 if answers_for == "own" else 1
        self._blocks = BlockGrid(attention.length) if isinstance(attention, BlockCausal) else None

    @property
    def abilities(self) -> frozenset[Ability]:
        """The kinds of Reads beyond plain ones that can be laid out, as overlays."""
        if isinstance(self.attention, Causal):
            return frozenset()
        streams: list[Ability] = ["two-stream"] if self._blocks else []
        return frozenset(streams if self._mask_id is None else [*streams, "shadow"])

    def waves(self, reads: Sequence[Read]) -> Iterator[list[Run]]:
        """Yield the runs that answer the reads, in the order in which they are to run: new texts
        that begin like another new one are laid out after that has run, and adopt its keys and
        values. Reads of one text share a run.
        """
        first, second, beginnings = list[Row](), list[Row](), set[bytes]()
        for row in distinct_rows(reads):
            if not any(len(reads[index].positions) for index in row.reads):
                continue
            if self.room is None or self._blocks is None:
                first.append(row)
                continue
            is_new = row.cache is not None and self.room.is_new(row.cache.slot)
            beginning = row.token_ids[:LEAST_SHARED].tobytes()
            (second if is_new and beginning in beginnings else first).append(row)
            if is_new and len(row.token_ids) >= LEAST_SHARED:
                beginnings.add(beginning)
        for wave in filter(None, (first, second)):
            yield [self._run(row, [reads[index] for index in row.reads]) for row in wave]

    def _run(self, row: Row, reads: Sequence[Read]) -> Run:
        length, room, hint = len(row.token_ids), self.room, row.cache
        if row.context_ids is not None and self._blocks is not None:
            return self._in_two_streams(row, reads, self._blocks)
        if row.num_shadows and self._mask_id is not None:
            return self._with_shadows(row, reads, self._mask_id)
        first, stop, is_window = 0, length, False
        if hint is not None and room is not None:
            if self._adopts(row, hint, reads):
                first, is_window = room.current(hint.slot), True
            elif hint.window is not None and room.holds(hint, length):
                first, stop = self._exact(hint, hint.window, length)
                is_window = True
        # Where row i - 1 answers for position i, the window must include one position more.
        first = max(0, first - self._shift)
        twin = () if row.guidance is None else (row.guidance.token_ids,)
        columns = [self._answering(read.positions) - first for read in reads]
        return Run(row, (row.token_ids[first:stop], *twin), columns, length, first, is_window)

    def _answering(self, positions: Ids) -> Ids:
        """Return the rows of a text whose logits answer for the positions, int64 [M]."""
        return np.maximum(positions - 1, 0) if self._shift else positions

    def _adopts(self, row: Row, hint: CacheHint, reads: Sequence[Read]) -> bool:
        """Return whether the row is a new text that got another's keys and values of its first
        blocks, before any position that is read.
        """
        if self._blocks is None or self.room is None or not self.room.is_new(hint.slot):
            return False
        first = int(np.concatenate([read.positions for read in reads]).min())
        count = self._blocks.start_of(self.room.num_cached(row.token_ids[:first]))
        return count >= LEAST_SHARED and self.room.adopt(hint, row.token_ids, count)

    def _exact(self, hint: CacheHint, window: tuple[int, int], length: int) -> tuple[int, int]:
        """Return the hint's window; in blocks widened until its answers are those of the whole
        text.

        Earlier blocks never see later ones, so whole blocks against current keys and values are
        exact. A block that began before the window, or goes on behind it, has cached keys that have
        seen the window's old tokens.
        """
        if self._blocks is None or self.room is None:
            return window
        start, stop = window
        start = self._blocks.start_of(min(start, self.room.current(hint.slot)))
        return start, min(self._blocks.start_of(stop - 1) + self._blocks.length, length)

    def _in_two_streams(self, row: Row, reads: Sequence[Read], blocks: BlockGrid) -> Run:
        """Return a row with a context as the tokens that its answers depend on: the blocks that it
        asks about, and the finished text before the last of them.

        Where row i - 1 answers for position i, that of a block's first token belongs to the
        finished block before it, as when the block is written.
        """
        length, num_tokens = blocks.length, len(row.token_ids)
        read_positions = np.unique(np.concatenate([read.positions for read in reads]))
        num_finished = blocks.start_of(int(read_positions[-1]))
        is_first = (read_positions % length == 0) & (read_positions > 0) & (self._shift == 1)
        block = np.unique(read_positions[~is_first] // length)[:, None]
        masked = block * length + np.arange(length)
        masked = masked[masked < num_tokens]

        def columns(positions: Ids) -> Ids:
            answering = self._answering(positions)
            among = num_finished + np.searchsorted(masked, answering)
            is_text = (positions % length == 0) & (positions > 0) & (self._shift == 1)
            return np.where(is_text, answering, among)

        def tokens(ids: Ids, context: Ids | None) -> Ids:
            assert context is not None
            return np.append(context[:num_finished], ids[masked])

        texts = [tokens(row.token_ids, row.context_ids)]
        if row.guidance is not None:
            texts.append(tokens(row.guidance.token_ids, row.guidance.context_ids))
        return Run(
            row,
            tuple(texts),
            [columns(read.positions) for read in reads],
            num_keys=len(texts[0]),
            positions=np.append(np.arange(num_finished), masked),
            groups=np.append(np.zeros(num_finished, np.int64), masked // length + 1),
        )

    def _with_shadows(self, row: Row, reads: Sequence[Read], mask_id: int) -> Run:
        """Return a row with shadows as its text and, for each position of its Reads of shadows, a
        mask token. Its plain Reads are answered by the text.

        Where row i - 1 answers for position i, an overlay holds two tokens, the mask at i and a
        copy of token i - 1, which attends to that mask and answers. If position i - 1 does not
        attend to i anyway, as across the border of blocks, the text answers.
        """
        num_tokens = len(row.token_ids)
        places, groups = list[int](), list[int]()
        column = np.zeros(num_tokens, np.int64)
        shadowed = [read.positions for read in reads if read.shadow]
        for group, position in enumerate(np.unique(np.concatenate(shadowed)), 1):
            answering = max(position - self._shift, 0)
            if not self.attention.allows(np.array([answering]), np.array([position]))[0, 0]:
                column[position] = answering
                continue
            members = {position, answering}
            places += sorted(members, reverse=True)
            groups += [group] * len(members)
            column[position] = num_tokens + len(places) - 1
        added = np.array(places, np.int64)
        is_mask = np.append(True, np.diff(groups) > 0)[: len(added)]
        texts = [row.token_ids] if row.guidance is None else [row.token_ids, row.guidance.token_ids]
        return Run(
            row,
            tuple(np.append(ids, np.where(is_mask, mask_id, ids[added])) for ids in texts),
            [
                column[read.positions] if read.shadow else self._answering(read.positions)
                for read in reads
            ],
            num_keys=num_tokens + len(added),
            positions=np.append(np.arange(num_tokens), added),
            groups=np.append(np.zeros(num_tokens, np.int64), np.array(groups, np.int64)),
        )
