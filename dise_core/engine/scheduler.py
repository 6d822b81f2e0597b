"""Which rows go into the next forward pass: first come, first served, within two limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dise_core.engine.request import Request
from dise_core.errors import TooLongError
from dise_core.reading import Row


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Fills batches within `max_num_seqs` sequences and `max_batch_tokens` tokens."""

    max_num_seqs: int
    max_batch_tokens: int

    def schedule(self, running: list[Request]) -> list[tuple[Request, Row]]:
        """Return the rows of the next batch, oldest request first.

        The batch holds rows of one predictor: that of the oldest waiting row. A row that no batch could hold fails its
        request. Skips nothing that waits longer, so every row is served after finitely many batches.
        """
        batch: list[tuple[Request, Row]] = []
        num_seqs = num_tokens = 0
        for request, row in self._waiting(running):
            if batch and row.predictor != batch[0][1].predictor:
                continue
            num_seqs += row.num_sequences
            num_tokens += row.num_tokens
            if batch and (num_seqs > self.max_num_seqs or num_tokens > self.max_batch_tokens):
                break
            batch.append((request, row))
        return batch

    def _waiting(self, running: list[Request]) -> Iterator[tuple[Request, Row]]:
        for request in running:
            for row in list(request.rows):
                if row.num_tokens > self.max_batch_tokens:
                    request.settle(row, self._too_long(row))
                    break
                yield request, row

    def _too_long(self, row: Row) -> TooLongError:
        return TooLongError(
            f"a text of {len(row.token_ids)} tokens takes {row.num_tokens} tokens of a batch, more than "
            f"max_batch_tokens={self.max_batch_tokens}; raise that limit or shorten the text",
            "max_batch_tokens",
        )
