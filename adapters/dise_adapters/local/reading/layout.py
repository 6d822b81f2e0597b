"""How rows are laid out as runs: flat sequences of tokens, each with its position in the
text.

A text runs whole; or as a window against the cached keys and values of the rest; or with
overlays, extra tokens appended to the sequence, each at the position of one of the
text's. An overlay sees the text as its positions may, with itself in place of the tokens
there; the text sees none. In a Read with a context the text is the finished one, and each
masked block an overlay; a shadow is an overlay of one mask. So the tokens of [x_t ; x_0],
as block-causal models are trained, follow from one rule, and only those that an answer
depends on run.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from dise_adapters.local.decoder.kv_cache import KVCache
from dise_adapters.local.decoder.prefixes import Key, Lease
from dise_core import Attention, BlockCausal, CacheHint, Canvases, Causal, Ids, Read
from dise_core.blocks import BlockGrid
from dise_core.models.info import AnswersFor
from dise_core.models.predictor import Ability
from dise_core.plans.rows import Row, distinct_rows

MIN_SHARED = 64
"""The fewest tokens for which a text waits until another that begins alike has run, or a
text that is written copies keys and values: for fewer, that costs more than it saves.
"""


@dataclass(slots=True, eq=False)
class Run:
    """What is run of a row.

    token_ids: the tokens, int64 [T], of the text and then, with guidance, of the
    unconditional one.
    columns: for each Read of the row, the tokens that answer for its positions, int64
    [M].
    num_keys: how many keys each token may attend to. first: the first token's position in
    the text; the others follow it, but for overlays. is_window: whether the keys are
    cached ones. rows: of memory, for the text's tokens, int64 [num_keys]; None where
    nothing is cached. lease: that of the rows, if they are lent for this run alone.
    num_reused: tokens at the text's start that an earlier one had computed. is_crowded:
    whether there were some, but no free rows for the rest.
    positions: each token's, int64 [T], and groups: 0 for tokens of the text, else the
    number of their overlay, int64 [T]; None without overlays.
    """

    row: Row
    token_ids: tuple[Ids, ...]
    columns: Sequence[Ids]
    num_keys: int
    first: int = 0
    is_window: bool = False
    rows: Ids | None = None
    lease: Lease | None = None
    num_reused: int = 0
    is_crowded: bool = False
    positions: Ids | None = None
    groups: Ids | None = None

    @property
    def length(self) -> int:
        return len(self.token_ids[0])

    def cut(self, first: int, stop: int) -> None:
        """Run only the tokens [first, stop) of a text without a twin or overlays."""
        self.columns = [columns - (first - self.first) for columns in self.columns]
        self.first, self.token_ids = first, (self.row.token_ids[first:stop],)


class Layout:
    """Lays rows out for one model."""

    def __init__(
        self,
        attention: Attention,
        answers_for: AnswersFor = "own",
        room: KVCache | None = None,
        mask_id: int | None = None,
    ) -> None:
        """room: the KV cache, if the model has one. mask_id: the mask token, if any."""
        self.attention, self.room, self._mask_id = attention, room, mask_id
        self._shift = 0 if answers_for == "own" else 1
        self._blocks = BlockGrid(attention.length) if isinstance(attention, BlockCausal) else None
        self._length = attention.length if isinstance(attention, BlockCausal | Canvases) else None
        self._prefixes = None if room is None else room.prefixes

    @property
    def abilities(self) -> frozenset[Ability]:
        """The kinds of Reads beyond plain ones that can be laid out, as overlays."""
        if isinstance(self.attention, Causal):
            return frozenset()
        streams: list[Ability] = ["two-stream"] if self._length else []
        return frozenset(streams if self._mask_id is None else [*streams, "shadow"])

    def waves(self, reads: Sequence[Read]) -> Generator[list[Run]]:
        """Yield the runs that answer the reads, in the order in which they are to run:
        texts that begin like another one are laid out after that has run, and reuse its
        keys and values. Reads of one text share a run. Once the next wave is asked for,
        or none, the last one has ended.
        """
        waiting = sorted(distinct_rows(reads), key=lambda row: -len(row.token_ids))
        waiting = [row for row in waiting if any(len(reads[i].positions) for i in row.reads)]
        tried = set[Key]()
        while waiting:
            runs, later, beginnings = list[Run](), list[Row](), set[Key]()
            try:
                for row in waiting:
                    row_reads = [reads[index] for index in row.reads]
                    reusable, computed = self._beginnings(row, row_reads)
                    # A row waits once for a beginning. The row that computes it may find no
                    # memory to keep it in: whoever waited again would wait for ever.
                    is_awaited = reusable in beginnings - tried
                    run = None if is_awaited else self._run(row, row_reads)
                    # Leases end with their wave: a row that found too little memory beside
                    # them tries again. Where there is none, it runs whole.
                    if run is None or (run.is_crowded and any(earlier.lease for earlier in runs)):
                        later.append(row)
                        continue
                    runs.append(run)
                    beginnings |= {computed} if computed else set()
                yield runs
            finally:
                self._end(runs)
            waiting, tried = later, tried | beginnings

    def computed(self, run: Run) -> None:
        """Record that a run has ended, and keep what it computed of finished text."""
        if run.rows is None or self.room is None:
            return
        ids, hint = run.row.token_ids, run.row.cache
        if hint is None and run.lease is not None:
            run.lease.finished = self._finished(ids[: run.num_keys])
        elif hint is not None:
            self.room.computed(hint.slot, run.first, run.first + run.length)
            if self._prefixes is not None:
                finished = self._finished(ids[: self.room.current(hint.slot)])
                self.room.keep(hint.slot, finished, run.row.cache_salt)

    def _end(self, runs: Sequence[Run]) -> None:
        for run in runs:
            if run.lease is not None and self._prefixes is not None:
                self._prefixes.end(run.lease)

    def _finished(self, ids: Ids) -> Ids:
        """Return the tokens before the first mask, int64 [<= N]."""
        masks = np.flatnonzero(ids == self._mask_id)
        return ids[: masks[0]] if len(masks) else ids

    def _beginnings(self, row: Row, reads: Sequence[Read]) -> tuple[Key | None, Key | None]:
        """Return what stands for the first tokens not known yet that the row could reuse,
        and for those that it computes; None where these are too few to wait for.
        """
        is_plain = row.guidance is None and row.context_ids is None and not row.num_shadows
        is_new = row.cache is None or self.room is None or self.room.is_new(row.cache.slot)
        if self._prefixes is None or not (is_plain and is_new):
            return None, None
        first = min(int(read.positions.min()) for read in reads if len(read.positions))
        reusable, computed = (
            self._prefixes.following(ids, MIN_SHARED, row.cache_salt)
            for ids in (row.token_ids[:first], self._finished(row.token_ids))
        )
        return reusable, computed

    def _run(self, row: Row, reads: Sequence[Read]) -> Run:
        if row.context_ids is not None and self._length is not None:
            return self._in_two_streams(row, reads, BlockGrid(self._length, row.start))
        if row.num_shadows and self._mask_id is not None:
            return self._with_shadows(row, reads, self._mask_id)
        twin = () if row.guidance is None else (row.guidance.token_ids,)
        columns = [self._answering(read.positions) for read in reads]
        run = Run(row, (row.token_ids, *twin), columns, len(row.token_ids))
        if row.cache is None and not twin:
            self._lend(run)
        elif row.cache is not None and self.room is not None:
            self._cache(run, row.cache, self.room, np.concatenate([r.positions for r in reads]))
        return run

    def _lend(self, run: Run) -> None:
        """Cut a text behind the last token that its answers depend on, and lend it rows
        of memory: those of its known beginning, and free ones for the rest.
        """
        ids, salt, answering = run.row.token_ids, run.row.cache_salt, np.concatenate(run.columns)
        first, stop = int(answering.min()), self._num_seen(int(answering.max()), len(ids))
        run.cut(0, stop)
        if self._prefixes is None or stop < self._prefixes.step:
            return
        lease = self._prefixes.begin(ids[:stop], first, salt)
        if lease is None:
            run.is_crowded = len(self._prefixes.known(ids[:first], salt)) >= MIN_SHARED
            return
        run.lease, run.rows, run.num_reused = lease, lease.rows, lease.num_known
        run.num_keys, run.is_window = stop, lease.num_known > 0
        run.cut(lease.num_known, stop)

    def _num_seen(self, position: int, length: int) -> int:
        """Return how many of a text's `length` tokens a position depends on."""
        if isinstance(self.attention, Causal):
            return position + 1
        if self._blocks is None:
            return length
        return min(self._blocks.start_of(position) + self._blocks.length, length)

    def _cache(self, run: Run, hint: CacheHint, room: KVCache, positions: Ids) -> None:
        """Give a text its slot's rows of memory, and what is known of its beginning if it
        is new. Cut one that is cached to the hint's window. positions: those read, int64
        [M].
        """
        ids, first, stop = run.row.token_ids, 0, run.num_keys
        rows = ids[:0]
        if self._prefixes is not None and room.is_new(hint.slot):
            rows = self._prefixes.known(ids[: positions.min()], run.row.cache_salt)
        if len(rows) >= MIN_SHARED and room.adopt(hint, ids, rows):
            first = run.num_reused = len(rows)
        elif hint.window is not None and room.holds(hint, len(ids)):
            first, stop = self._exact(hint, hint.window, len(ids))
        elif room.take(hint, len(ids)):
            run.rows = room.rows(hint.slot)
            return
        else:
            return
        # Where row i - 1 answers for position i, the window must include one position
        # more.
        run.rows, run.is_window = room.rows(hint.slot), True
        run.cut(max(0, first - self._shift), stop)

    def _answering(self, positions: Ids) -> Ids:
        """Return the rows of a text whose logits answer for the positions, int64 [M]."""
        return np.maximum(positions - 1, 0) if self._shift else positions

    def _exact(self, hint: CacheHint, window: tuple[int, int], length: int) -> tuple[int, int]:
        """Return the hint's window; in blocks widened until its answers are those of the
        whole text.

        Earlier blocks never see later ones, so whole blocks against current keys and
        values are exact. A block that began before the window, or goes on behind it, has
        cached keys that have seen the window's old tokens.
        """
        if self._blocks is None or self.room is None:
            return window
        start, stop = window
        start = self._blocks.start_of(min(start, self.room.current(hint.slot)))
        return start, min(self._blocks.start_of(stop - 1) + self._blocks.length, length)

    def _in_two_streams(self, row: Row, reads: Sequence[Read], blocks: BlockGrid) -> Run:
        """Return a row with a context as the tokens that its answers depend on: the
        blocks that it asks about, and the finished text before the last of them.

        Where row i - 1 answers for position i, that of a block's first token belongs to
        the finished block before it, as when the block is written.
        """
        length, origin, num_tokens = blocks.length, blocks.origin, len(row.token_ids)
        read_positions = np.unique(np.concatenate([read.positions for read in reads]))
        num_finished = blocks.start_of(int(read_positions[-1]))
        is_first = (read_positions % length == 0) & (read_positions > 0) & (self._shift == 1)
        block = np.unique((read_positions[~is_first] - origin) // length)[:, None]
        masked = origin + block * length + np.arange(length)
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
            groups=np.append(np.zeros(num_finished, np.int64), (masked - origin) // length + 1),
        )

    def _with_shadows(self, row: Row, reads: Sequence[Read], mask_id: int) -> Run:
        """Return a row with shadows as its text and, for each position of its Reads of
        shadows, a mask token. Its plain Reads are answered by the text.

        Where row i - 1 answers for position i, an overlay holds two tokens, the mask at i
        and a copy of token i - 1, which attends to that mask and answers. If position i -
        1 does not attend to i anyway, as across the border of blocks, the text answers.
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
