"""What the passes over one response leave for later ones, and how a scorer profits from it."""

from collections.abc import Sequence
from typing import ClassVar, TypeGuard, TypeVar

import numpy as np

from dise_core.arrays import Ids, LogProbs
from dise_core.plans.plan import Plan, answer_by
from dise_core.plans.reading import CacheHint, Read, Reading
from dise_core.plans.readouts import TokenLogProbs

T = TypeVar("T")


class Memory:
    """What is remembered of one response under way; here, nothing. Mutable."""

    knows_tokens: ClassVar[bool] = False
    """Whether `known` may know anything."""

    def begin(self, context: Ids, max_tokens: int) -> None:
        """Start to fill the masks of a text that may grow to `most` tokens. context: what
        precedes them, int64 [C], for keys and values to be reused; empty where none are.
        """

    def hint(self, text: Ids, block: Ids, is_first: bool) -> CacheHint | None:
        """Return the hint for a Read of the text, int64 [N], that is made next; None
        without a cache. block: the positions to be filled, int64 [M]; is_first: whether
        it is a first step.
        """

    def known(self, text: Ids) -> LogProbs | None:
        """Return the log-probability of regenerating each token of a text, int64 [N], as
        far as it is known: float32 [N], NaN where it is not; None where it never is.
        """

    def note(self, read: Read, reading: Reading) -> None:
        """Keep what a Read was answered."""


def asks_own_tokens(read: Read) -> bool:
    """Return whether the Read asks the model itself for a text's own tokens."""
    return (
        isinstance(read.readout, TokenLogProbs)
        and read.predictor == "target"
        and read.guidance is None
        and read.context_ids is None
        and not read.shadow
        and np.array_equal(read.readout.targets, read.token_ids[read.positions])
    )


def remembering(plan: Plan[T], memory: Memory) -> Plan[T]:
    """Return a plan with the same result that asks only for what is not known."""
    if not memory.knows_tokens:
        return (yield from plan)
    return (yield from answer_by(plan, lambda reads: _readings(reads, memory)))


def _readings(reads: Sequence[Read], memory: Memory) -> Plan[Sequence[Reading]]:
    values = [_known_logprobs(read, memory) for read in reads]
    pairs = list(zip(reads, values, strict=True))
    missing = [(read, logprobs) for read, logprobs in pairs if not _is_whole(logprobs)]
    hint = _hint(missing, memory)
    gaps = [_gaps(read, logprobs, hint) for read, logprobs in missing]
    answers = zip(gaps, (yield gaps) if gaps else [], strict=True)
    readings = list[Reading]()
    for read, logprobs in pairs:
        if _is_whole(logprobs):
            token_ids, is_known = read.token_ids[read.positions], np.ones(len(logprobs), np.bool_)
            readings.append(Reading(token_ids, logprobs, share=0.0, is_known=is_known))
            continue
        gap, answer = next(answers)
        memory.note(gap, answer)
        if logprobs is not None and hint is not None:
            answer = _fill(read, logprobs, answer)
        readings.append(answer)
    return readings


def _is_whole(logprobs: LogProbs | None) -> TypeGuard[LogProbs]:
    return logprobs is not None and not np.isnan(logprobs).any()


def _known_logprobs(read: Read, memory: Memory) -> LogProbs | None:
    """Return what is known of a Read's answer, float32 [M], else NaN; None if never."""
    is_own = asks_own_tokens(read)
    logprobs = memory.known(read.token_ids) if is_own else None
    return None if logprobs is None else logprobs[read.positions]


def _hint(missing: Sequence[tuple[Read, LogProbs | None]], memory: Memory) -> CacheHint | None:
    """Return the hint with which a pass over the text's end answers all gaps."""
    if not missing:
        return None
    text = missing[0][0].token_ids
    hint = memory.hint(text, text, is_first=True)
    if hint is None or hint.window is None:
        return None
    is_enough = all(
        logprobs is not None
        and np.array_equal(read.token_ids, text)
        and read.positions[np.isnan(logprobs)].min() >= hint.window[0]
        for read, logprobs in missing
    )
    return hint if is_enough else None


def _gaps(read: Read, logprobs: LogProbs | None, hint: CacheHint | None) -> Read:
    if hint is None or logprobs is None:
        return read
    assert isinstance(read.readout, TokenLogProbs), "only a text's own tokens are known"
    is_missing = np.isnan(logprobs)
    positions, readout = read.positions[is_missing], read.readout.at(is_missing)
    return Read(read.token_ids, positions, readout, cache=hint, start=read.start)


def _fill(read: Read, logprobs: LogProbs, gaps: Reading) -> Reading:
    token_ids, is_known = read.token_ids[read.positions], ~np.isnan(logprobs)
    logprobs[~is_known] = gaps.logprobs
    return Reading(token_ids, logprobs, share=gaps.share, is_exact=gaps.is_exact, is_known=is_known)
