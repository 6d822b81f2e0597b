"""Which rows go into the next forward pass: first come, first served, within the batch limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dise_core.engine.request import Request
from dise_core.errors import TooLongError
from dise_core.model import CacheRoom
from dise_core.rows import Row

Turn = tuple[Request, Row]


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Fills batches of at most `max_num_seqs` sequences and `max_batch_tokens` tokens, within the
    room of each predictor's cache.
    """

    max_num_seqs: int
    max_batch_tokens: int
    rooms: Mapping[str, CacheRoom] = field(default_factory=dict)

    def schedule(self, running: list[Request]) -> list[Turn]:
        """Return the rows of the next batch, oldest request first.

        The batch holds rows of one predictor: that of the oldest row with room in the cache. A row
        of more than max_batch_tokens tokens fails its request. A row is skipped only while it waits
        for its predictor's turn or for room in the cache, so each runs after finitely many batches.
        """
        batch: list[Turn] = []
        num_seqs = num_tokens = 0
        for request, row in self._with_room(self._waiting(running)):
            if batch and row.predictor != batch[0][1].predictor:
                continue
            num_seqs += row.num_sequences
            num_tokens += row.num_tokens
            if batch and (num_seqs > self.max_num_seqs or num_tokens > self.max_batch_tokens):
                break
            batch.append((request, row))
        return batch

    def _with_room(self, waiting: Iterator[Turn]) -> Iterator[Turn]:
        """Yield the rows that need no room in the cache, or find enough.

        A row that finds too little waits until a request ends, and so do all later rows that need
        room. If no other row can run, the oldest of them runs uncached.
        """
        free = {name: room.num_free for name, room in self.rooms.items()}
        oldest, is_idle = None, True
        for request, row in waiting:
            missing = 0
            if row.cache is not None and row.predictor in self.rooms:
                missing = self.rooms[row.predictor].missing(row.cache, len(row.token_ids))
            if missing > free.get(row.predictor, 0):
                oldest = oldest or (request, row)
                # Later rows must not take the room that this one waits for, even if they would fit.
                free[row.predictor] = 0
            else:
                free[row.predictor] = free.get(row.predictor, 0) - missing
                is_idle = False
                yield request, row
        if is_idle and oldest:
            yield oldest

    def _waiting(self, running: list[Request]) -> Iterator[Turn]:
        for request in running:
            for row in list(request.rows):
                if row.num_tokens > self.max_batch_tokens:
                    request.settle(row, self._too_long(row))
                    break
                yield request, row

    def _too_long(self, row: Row) -> TooLongError:
        return TooLongError(
            f"a text of {len(row.token_ids)} tokens takes {row.num_tokens} tokens of a batch, "
            "more than "
            f"max_batch_tokens={self.max_batch_tokens}; raise that limit or shorten the text",
            "max_batch_tokens",
        )
