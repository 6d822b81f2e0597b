"""Adaptive best-of-n: answers are written in waves until one is sure enough."""

from collections.abc import Callable, Iterator, Sequence

from dise_core.params.requests import SamplingParams
from dise_core.plans.plan import Plan, Running, one_round, started
from dise_core.plans.rows import row_key
from dise_core.scoring.calibration import Calibration
from dise_core.writing.generation import Generation


def in_waves(
    sample: Callable[[int], Plan[Generation]],
    params: SamplingParams,
    calibration: Calibration | None,
    at_once: int,
) -> Plan[list[Generation]]:
    """Return a plan of the answers that are written: all of the request's samples or,
    with stop_at, as many as it takes until one of them is that sure. sample: returns the
    plan of one, by number.
    at_once: the most that go on in a step.

    Later waves go along while they read the same texts, which costs no pass.
    """
    if params.num_samples == 1:
        return [(yield from sample(0))]
    answers = list[Generation]()
    with started(map(sample, range(params.num_samples))) as samples:
        for wave in waves(params):
            answers += yield from _write(
                samples[wave.start : wave.stop], samples[wave.stop :], at_once
            )
            scores = (answer.evaluation.score.value for answer in answers)
            if any(is_sure(score, params, calibration) for score in scores):
                break
    return answers


def _write(
    wave: Sequence[Running[Generation]], later: Sequence[Running[Generation]], at_once: int
) -> Plan[list[Generation]]:
    """Return a plan of a wave's answers; `later` samples join if rows stay equal."""
    while waiting := [sample for sample in wave if not sample.is_done]:
        # All samples of a prompt begin with the same canvas of masks, and the engine runs equal
        # rows once. A later sample that would need a row of its own stays where it is, suspended,
        # and goes on from there if its wave is wanted.
        idle = [sample for sample in later if not sample.is_done]
        if idle:
            rows = {row_key(read) for sample in waiting for read in sample.reads}
            waiting += [sample for sample in idle if rows.issuperset(map(row_key, sample.reads))]
        yield from one_round(waiting[:at_once])
    return [sample.result for sample in wave]


def waves(params: SamplingParams) -> Iterator[range]:
    """Yield the samples of each wave: all or, with stop_at, n, then as many again."""
    count, total = 0, params.num_samples
    while count < total:
        size = total if params.stop_at is None else min(count or params.n, total - count)
        yield range(count, count + size)
        count += size


def is_sure(score: float, params: SamplingParams, calibration: Calibration | None) -> bool:
    """Return whether a score, or with a calibration its probability, reaches stop_at."""
    value = score if calibration is None else calibration.probability(score)
    return params.stop_at is not None and value is not None and value >= params.stop_at
