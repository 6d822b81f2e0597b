"""Adaptive best-of-n: answers are written in waves until one is sure enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dise_core.calibration import Calibration
from dise_core.outputs import Generation
from dise_core.params import SamplingParams
from dise_core.reading import Plan, gather


def in_waves(
    sample: Callable[[int], Plan[Generation]],
    params: SamplingParams,
    calibration: Calibration | None,
) -> Plan[list[Generation]]:
    """Return a plan of the answers that are written: all of the request's samples or, with stop_at,
    as many as it takes until one of them is that sure. sample: returns the plan of one, by number.
    """
    written: list[Generation] = []
    for wave in waves(params):
        written += yield from gather(*map(sample, wave))
        if any(is_sure(one.evaluation.score.value, params, calibration) for one in written):
            break
    return written


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
