"""How many masks each step fills: evenly, or in diffusion time as in Dream."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise, repeat


@dataclass(frozen=True, slots=True)
class Commit:
    """What one step commits: `quota` masks, or each with probability `share`."""

    quota: int
    share: float


@dataclass(slots=True)
class Schedule:
    """The steps of one block: an int counts tokens, a float is a share of the masks."""

    steps: Iterator[int | float]

    def next(self, num_masked: int) -> Commit:
        """Return the next commit of num_masked >= 1 tokens; quota 0 may be skipped."""
        step = next(self.steps)
        if isinstance(step, float):
            return Commit(int(num_masked * step), step)
        quota = min(step, num_masked)
        return Commit(quota, quota / num_masked)


def in_steps(num_masked: int, num_steps: int) -> Schedule:
    """Return the schedule that commits num_masked tokens in min(num_steps, num_masked)
    near-equal steps, the first ones larger, and then 1 without end, since a policy may
    commit fewer than its quota. Source: LLaDA's get_num_transfer_tokens.
    """
    steps = min(num_steps, num_masked)
    return Schedule(chain((share(num_masked, step, steps) for step in range(steps)), repeat(1)))


def in_time(num_steps: int, eps: float) -> Schedule:
    """Return the schedule whose diffusion time falls evenly from 1 to eps: the step from
    t to s commits the share 1 - s/t, the last one all. Source: Dream's
    diffusion_generate.
    """
    times = (1 + (eps - 1) * step / num_steps for step in range(num_steps))
    shares = (1 - after / before for before, after in pairwise(times))
    return Schedule(chain(shares, repeat(1.0)))


def share(total: int, index: int, parts: int) -> int:
    """Return the index-th near-equal share of total; earlier ones may be 1 larger."""
    return total // parts + (index < total % parts)
