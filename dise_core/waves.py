"""Adaptive best-of-n: answers are written in waves until one is sure enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from operator import methodcaller

from dise_core.calibration import Calibration
from dise_core.outputs import Generation
from dise_core.params import SamplingParams
from dise_core.reading import Plan, Read
from dise_core.rows import row_key


class _Sample:
    """One answer under way: its plan, the Reads that it waits for, and in the end the answer."""

    __slots__ = ("answer", "plan", "reads")

    def __init__(self, plan: Plan[Generation]) -> None:
        self.plan = plan
        self.reads: Sequence[Read] = ()
        self.answer: Generation | None = None

    def advance(self, step: Callable[[Plan[Generation]], Sequence[Read]]) -> None:
        """Run its plan to the next Reads, or to its end."""
        try:
            self.reads = step(self.plan)
        except StopIteration as stop:
            self.reads, self.answer = (), stop.value


def in_waves(
    sample: Callable[[int], Plan[Generation]],
    params: SamplingParams,
    calibration: Calibration | None,
) -> Plan[list[Generation]]:
    """Return a plan of the answers that are written: all of the request's samples or, with stop_at,
    as many as it takes until one of them is that sure. sample: returns the plan of one, by number.

    The samples of later waves go along as long as they read the same texts as those of the earlier
    ones, which costs no pass: so waves never take more passes than all samples at once.
    """
    samples = [_Sample(sample(number)) for number in range(params.num_samples)]
    written = list[Generation]()
    with ExitStack() as stack:  # one that fails to close leaves no other open
        for each in samples:
            stack.callback(each.plan.close)
            each.advance(next)
        for wave in waves(params):
            written += yield from _write(samples[wave.start : wave.stop], samples[wave.stop :])
            if any(is_sure(one.evaluation.score.value, params, calibration) for one in written):
                break
    return written


def _write(wave: Sequence[_Sample], later: Sequence[_Sample]) -> Plan[list[Generation]]:
    """Return a plan of the answers of a wave. Samples that are `later` go along with it while all
    rows that they need are among those of the wave.

    An error thrown into it is raised in each plan that is waiting for the same Reads.
    """
    while waiting := [each for each in wave if each.answer is None]:
        rows = {row_key(read) for each in waiting for read in each.reads}
        idle = (each for each in later if each.answer is None)
        waiting += [each for each in idle if rows.issuperset(map(row_key, each.reads))]
        try:
            readings = yield [read for each in waiting for read in each.reads]
        except Exception as error:
            for each in waiting:
                each.advance(methodcaller("throw", error))
            continue
        start = 0
        for each in waiting:
            stop = start + len(each.reads)
            each.advance(methodcaller("send", readings[start:stop]))
            start = stop
    return [each.answer for each in wave if each.answer is not None]


def waves(params: SamplingParams) -> Iterator[range]:
    """Yield the samples that are written together: all or, with stop_at, first n and then always as
    many as there are.
    """
    done, total = 0, params.num_samples
    while done < total:
        size = total if params.stop_at is None else min(done or params.n, total - done)
        yield range(done, done + size)
        done += size


def is_sure(score: float, params: SamplingParams, calibration: Calibration | None) -> bool:
    """Return whether a score, or with a calibration its probability, reaches stop_at."""
    value = score if calibration is None else calibration.probability(score)
    return params.stop_at is not None and value is not None and value >= params.stop_at
