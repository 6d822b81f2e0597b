"""Chooses the rows of the next pass, and the plans that go on behind it: each caller's
share, within the limits.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from time import perf_counter

from dise_core.engine.caller import Caller
from dise_core.engine.request import Request
from dise_core.errors import TooLongError
from dise_core.models.predictor import CacheRoom
from dise_core.plans.rows import Row

Turn = tuple[Request, Row]

SHARE = 256
"""A caller's tokens of a batch while others wait: one token takes as long."""

FEW = 4096
"""Tokens of a batch of one caller where others may come, who wait until it is done."""

PATIENCE = 0.1
"""Seconds of such a batch, of windows: tokens beyond FEW that take no longer, by the last
batch of windows. Their time depends on their texts little, and on how many run much.
"""

LULL = 0.05
"""Seconds that plans of one caller go on where others may come, who wait until then."""


class Scheduler:
    """Fills batches of at most `max_num_seqs` sequences and `max_batch_tokens` tokens,
    within the room of each predictor's cache.

    While the requests of several callers wait, they share the batches by deficit
    round-robin over tokens: each batch gives every caller as many tokens as twice the
    shortest row, SHARE at least, and what a caller does not use it keeps while it waits.
    So a request of many or long rows delays a small one by about its own share, and still
    runs. Source: Shreedhar and Varghese, 1995.
    """

    def __init__(
        self, max_num_seqs: int, max_batch_tokens: int, rooms: Mapping[str, CacheRoom] | None = None
    ) -> None:
        self.max_num_seqs = max_num_seqs
        self.max_batch_tokens = max_batch_tokens
        self.rooms = rooms or {}
        self._credits: dict[Caller, int] = {}
        self._seconds: dict[Caller, float] = {}
        self._window_tokens = 0
        self._rate = 0.0

    def ran(self, seconds: float) -> None:
        """Record how long the batch that was scheduled last took."""
        if self._window_tokens:
            self._rate = self._window_tokens / max(seconds, 1e-9)

    def schedule(self, running: list[Request]) -> list[Turn]:
        """Return the rows of the next batch; those of one caller oldest request first.

        The batch holds rows of one predictor: that of the first row with room in the
        cache. A row of more than max_batch_tokens tokens fails its request. A row is
        skipped only while it waits for its caller's or predictor's turn or for room, so
        each runs after finitely many batches. There is no batch while plans of a lone
        caller are still to go on: a pass takes about as long for few rows.
        """
        is_alone = len({request.caller for request in running}) == 1
        if is_alone and any(request.is_answered for request in running):
            self._window_tokens = 0
            return []
        batch = self._fill(self._with_room(self._in_turn(running)))
        # Those whose turn it is may wait for room that others hold: then the others run.
        batch = batch or self._fill(self._with_room(self._waiting(running)))
        return batch or self._fill(islice(self._waiting(running), 1))

    def going_on(self, running: list[Request], seconds: float) -> Iterator[Request]:
        """Yield the answered requests whose plans are to go on before the next batch,
        those of one caller oldest first; the time until the next one is asked for is
        theirs. seconds: of the last batch, 0 if there was nothing to run.

        Beside others a caller's plans go on for half as long as the batch took; what the
        last of them takes beyond that, its caller owes. So plans that compute much
        themselves, as under a large constraint, delay those of others little.
        """
        callers = {request.caller for request in running}
        earned = seconds / 2 if len(callers) > 1 and seconds else max(seconds, LULL)
        # A plan cannot be stopped within a step, so its caller may overdraw: that debt is carried
        # on, and what is left over is lost. Otherwise a caller could save up for one long step, or
        # begin each batch with a clean slate and take half of all time with every single one.
        self._seconds = {
            caller: math.inf if caller.is_alone else earned + min(0, self._seconds.get(caller, 0))
            for caller in callers
        }
        for request in running:
            if request.is_answered and self._seconds[request.caller] > 0:
                begun = perf_counter()
                yield request
                self._seconds[request.caller] -= perf_counter() - begun

    def _fill(self, rows: Iterator[Turn]) -> list[Turn]:
        batch: list[Turn] = []
        num_seqs = num_tokens = 0
        has_windows = False
        for request, row in rows:
            if batch and row.predictor != batch[0][1].predictor:
                continue
            row_tokens = self._tokens(row)
            is_window = row_tokens < len(row.token_ids)
            limit = self._most_tokens(request, is_window)
            num_seqs += row.num_sequences
            if batch and (num_seqs > self.max_num_seqs or num_tokens + row_tokens > limit):
                break
            num_tokens += row_tokens
            has_windows |= is_window
            batch.append((request, row))
            # A row that was too long may have been followed by the first one of its
            # caller.
            self._credits[request.caller] = self._credits.get(request.caller, 0) - row_tokens
        self._window_tokens = num_tokens if has_windows else 0
        return batch

    def _tokens(self, row: Row) -> int:
        """Return how many tokens of a batch a row takes, fewer for a window."""
        hint, room = row.cache, self.rooms.get(row.predictor)
        if hint is None or room is None or row.num_shadows or row.context_ids is not None:
            return row.num_tokens
        return room.counted(hint, len(row.token_ids))

    def _most_tokens(self, request: Request, is_window: bool) -> int:
        waits_alone = len(self._credits) == 1 and not request.caller.is_alone
        if not waits_alone:
            return self.max_batch_tokens
        soon = int(PATIENCE * self._rate) if is_window else 0
        return min(self.max_batch_tokens, max(FEW, soon))

    def _in_turn(self, running: list[Request]) -> Iterator[Turn]:
        """Yield waiting rows, most credit first; several callers share by credit."""
        callers: dict[Caller, list[Turn]] = {}
        for request, row in self._waiting(running):
            callers.setdefault(request.caller, []).append((request, row))
        self._credits = {caller: self._credits.get(caller, 0) for caller in callers}
        if len(callers) < 2:
            yield from chain.from_iterable(callers.values())
            return
        shortest = min(self._tokens(row) for _, row in chain(*callers.values()))
        for caller, credit in self._credits.items():
            # A credit is negative where its caller was alone, or a row ran as no other could.
            # That took nothing from anybody, so it is forgiven.
            earned = max(0, credit) + max(SHARE, 2 * shortest)
            self._credits[caller] = min(earned, self.max_batch_tokens)
        for caller in sorted(callers, key=lambda caller: -self._credits[caller]):
            for request, row in callers[caller]:
                if self._credits[caller] < self._tokens(row):
                    break
                yield request, row

    def _with_room(self, waiting: Iterator[Turn]) -> Iterator[Turn]:
        """Yield the rows that need no room in the cache, or find enough. A row that finds
        too little waits until a request ends, and so do all later rows that need room.
        """
        free = {name: room.num_free for name, room in self.rooms.items()}
        for request, row in waiting:
            if row.cache is None or row.predictor not in self.rooms:
                yield request, row
                continue
            missing = self.rooms[row.predictor].missing(row.cache, len(row.token_ids))
            if missing <= free[row.predictor]:
                free[row.predictor] -= missing
                yield request, row
            else:
                # Later rows must not take the room that this one waits for, even if they
                # would fit.
                free[row.predictor] = 0

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
            f"more than max_batch_tokens={self.max_batch_tokens}; raise that limit or shorten "
            "the text",
            "max_batch_tokens",
        )
