"""How many masked tokens each denoising step commits: evenly by count, or evenly in diffusion time
as Dream does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise, repeat


@dataclass(frozen=True, slots=True)
class Commit:
    """What one step commits of the tokens that are still masked: `quota` of them, or each with
    probability `share`.
    """

    quota: int
    share: float


class Schedule:
    """The steps of one block: at each, tell how many tokens are masked and learn what to commit."""

    def __init__(self, steps: Iterator[int | float]) -> None:
        """Take the steps: an int is a number of tokens, a float a share of those still masked."""
        self._steps = steps

    def next(self, num_masked: int) -> Commit:
        """Return what the next step commits of num_masked >= 1 tokens; a quota of 0 is a step that
        may be left out.
        """
        step = next(self._steps)
        if isinstance(step, float):
            return Commit(int(num_masked * step), step)
        quota = min(step, num_masked)
        return Commit(quota, quota / num_masked)


def at_rate(tokens_per_step: int) -> Schedule:
    """Return the schedule that commits tokens_per_step tokens at every step."""
    return Schedule(repeat(tokens_per_step))


def in_steps(num_masked: int, num_steps: int) -> Schedule:
    """Return the schedule that fills num_masked tokens in at most num_steps steps, the first ones
    taking the remainder.

    A policy may commit fewer than its quota, so single tokens follow without end. Source: LLaDA's
    get_num_transfer_tokens.
    """
    steps = min(num_steps, num_masked)
    return Schedule(chain((share(num_masked, step, steps) for step in range(steps)), repeat(1)))


def in_time(num_steps: int, eps: float) -> Schedule:
    """Return the schedule whose time t falls evenly from 1 to eps over num_steps steps, each with
    the share 1 - s/t.

    The last step takes all. Source: Dream's diffusion_generate.
    """
    times = [1 + (eps - 1) * step / num_steps for step in range(num_steps)]
    shares = (1 - after / before for before, after in pairwise(times))
    return Schedule(chain(shares, repeat(1.0)))


def share(total: int, index: int, parts: int) -> int:
    """Return the index-th of `parts` nearly equal shares of total: the first ones take the
    remainder.
    """
    return total // parts + (index < total % parts)
