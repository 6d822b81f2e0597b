"""The finished blocks of a response under block-causal attention: what is cached and known of them.

Text that follows a finished block changes neither its keys and values nor the log-probabilities of
regenerating its tokens, so both are computed once, in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from dise_core.arrays import Ids, LogProbs, num_shared
from dise_core.blocks import BlockGrid
from dise_core.completion import border_of, completed
from dise_core.model import ModelInfo
from dise_core.reading import CacheHint, CacheSlot, Plan, Read, Reading, TokenLogProbs

T = TypeVar("T")


class FinishedBlocks:
    """The finished blocks of one response: their keys and values, in a slot of the cache, and their
    tokens' log-probabilities. Mutable: one object for each response.

    A block counts as cached, or as known, as long as the text up to its end is what it was then.
    """

    def __init__(self, info: ModelInfo, is_caching: bool = True) -> None:
        """info: of a model with block-causal attention. is_caching: whether to give cache hints."""
        self._info = info
        self._grid = BlockGrid(info.block_length or 1)
        self._slot = CacheSlot() if is_caching else None
        self._cached: Ids = np.zeros(0, np.int64)
        """The last text that was read with a hint."""
        self._ids: Ids = np.zeros(0, np.int64)
        """The text whose log-probabilities are known, without masks."""
        self._logprobs: LogProbs = np.zeros(0, np.float32)
        """float32, as long as it; NaN where not known."""

    def hint(self, text: Ids, most: int = 0) -> CacheHint | None:
        """Return the hint for a Read of the text, int64 [N], that is made now; None without a
        cache. most: the tokens that the text may grow to, beside those that complete it.
        """
        if self._slot is None:
            return None
        start = min(self.first_computed(text), self._grid.start_of(max(len(text) - 1, 0)))
        self._cached = text.copy()
        window = (start, len(text)) if start else None
        return CacheHint(self._slot, window, border_of(max(most, len(text)), self._info))

    def first_computed(self, text: Ids) -> int:
        """Return the first position of the text, int64 [N], whose block is not cached."""
        if self._slot is None:
            return 0
        return self._grid.start_of(num_shared(self._cached, text))

    def logprobs(self, text: Ids) -> LogProbs:
        """Return the log-probability of regenerating each token of a text, int64 [N], as far as it
        is known: float32 [N], NaN where it is not.
        """
        whole = self._completed(text)
        values = np.full(len(whole), np.nan, np.float32)
        num_known = self._num_whole(whole, num_shared(self._ids, whole))
        values[:num_known] = self._logprobs[:num_known]
        return values[: len(text)]

    def note(self, read: Read, reading: Reading) -> None:
        """Keep what a Read of a text's own tokens was answered for its finished blocks. Any other
        Read, an approximate answer, and a last block that was read without what completes it are
        ignored.
        """
        if not _asks_own_tokens(read) or not reading.is_exact:
            return
        whole = self._completed(read.token_ids)
        masked = np.flatnonzero(whole == self._info.special.mask_id)
        stop = self._grid.start_of(int(masked[0])) if len(masked) else len(whole)
        if read.is_complete:
            stop = min(stop, self._grid.start_of(len(read.token_ids)))
        logprobs = np.full(len(whole), np.nan, np.float32)
        logprobs[: len(read.token_ids)] = self.logprobs(read.token_ids)
        logprobs[read.positions] = reading.logprobs
        self._ids, self._logprobs = whole[:stop].copy(), logprobs[:stop]

    def answering(self, plan: Plan[T]) -> Plan[T]:
        """Return a plan with the same result that asks only for what is not known. Raises what the
        plan raises.
        """
        try:
            reads = next(plan)
            while True:
                try:
                    readings = yield from self._readings(reads)
                except Exception as error:
                    reads = plan.throw(error)
                else:
                    reads = plan.send(readings)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            plan.close()

    def _readings(self, reads: Sequence[Read]) -> Plan[list[Reading]]:
        """Return a plan of the answers: those that are known, and the others asked in one yield."""
        known = [self._known(read) for read in reads]
        missing = [index for index, values in enumerate(known) if _has_gaps(values)]
        hint = self._hint_for([(reads[index], known[index]) for index in missing])
        asked = {index: _gaps_of(reads[index], known[index], hint) for index in missing}
        answers = (yield list(asked.values())) if asked else []
        found = dict(zip(asked, answers, strict=True))
        for index, reading in found.items():
            self.note(asked[index], reading)
        return [
            _filled(read, values, found.get(index), is_part=hint is not None)
            for index, (read, values) in enumerate(zip(reads, known, strict=True))
        ]

    def _known(self, read: Read) -> LogProbs | None:
        """Return what is known of a Read's answer, float32 [M], NaN where nothing is; None for a
        Read of anything but a text's own tokens.
        """
        if not _asks_own_tokens(read):
            return None
        return self.logprobs(read.token_ids)[read.positions]

    def _hint_for(self, missing: Sequence[tuple[Read, LogProbs | None]]) -> CacheHint | None:
        """Return the hint with which one pass over the end of the text answers all that is missing;
        None where that needs the whole text.
        """
        if self._slot is None or not missing:
            return None
        text = missing[0][0].token_ids
        start = min(self.first_computed(text), self._grid.start_of(len(text) - 1))
        for read, known in missing:
            if known is None or not np.array_equal(read.token_ids, text):
                return None
            if read.positions[np.isnan(known)].min() < start:
                return None
        return self.hint(text) if start else None

    def _num_whole(self, text: Ids, num_common: int) -> int:
        """Return how many of the first positions, equal in the text and in the one that is known,
        make whole blocks; the last one counts as whole where both texts end in it.
        """
        if num_common == len(text) == len(self._ids):
            return num_common
        return self._grid.start_of(num_common)

    def _completed(self, text: Ids) -> Ids:
        """Return the text as the model reads it: completed to its last block's border."""
        return completed(Read(text, text[:0], TokenLogProbs(text[:0])), self._info).token_ids


def _asks_own_tokens(read: Read) -> bool:
    """Return whether the Read asks the model itself for a text's own tokens."""
    return (
        isinstance(read.readout, TokenLogProbs)
        and read.predictor == "target"
        and read.guidance is None
        and read.context_ids is None
        and not read.shadow
        and np.array_equal(read.readout.targets, read.token_ids[read.positions])
    )


def _has_gaps(known: LogProbs | None) -> bool:
    return known is None or bool(np.isnan(known).any())


def _gaps_of(read: Read, known: LogProbs | None, hint: CacheHint | None) -> Read:
    """Return the Read of what is not known of a Read's answer; without a hint the whole Read."""
    if hint is None or known is None:
        return read
    positions = read.positions[np.isnan(known)]
    return Read(read.token_ids, positions, TokenLogProbs(read.token_ids[positions]), cache=hint)


def _filled(
    read: Read, known: LogProbs | None, reading: Reading | None, *, is_part: bool
) -> Reading:
    """Return the answer to a Read from what is known of it and what it, or the part of it that was
    not known, was answered.
    """
    if reading is not None and not is_part:
        return reading
    values = np.zeros(0, np.float32) if known is None else known
    share, is_exact = 0.0, True
    if reading is not None:
        values[np.isnan(values)] = reading.logprobs
        share, is_exact = reading.share, reading.is_exact
    return Reading(read.token_ids[read.positions], values, share=share, is_exact=is_exact)
