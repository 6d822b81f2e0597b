"""Policies that ignore the schedule and commit what is sure enough. Source: Fast-dLLM."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from dise_core import Ids, UnmaskingPolicy, UnmaskingStep
from dise_strategies.unmasking.ranked import surest


class ThresholdUnmasking(UnmaskingPolicy):
    """Commits every candidate whose probability reaches the threshold, and always the best one."""

    uses_quota: ClassVar[bool] = False

    threshold: float = Field(default=0.9, ge=0, le=1)
    """Candidates at least this probable are committed."""

    def choose(self, step: UnmaskingStep) -> Ids:
        num_sure = int((step.confidences >= self.threshold).sum())
        return surest(step.confidences)[: max(1, num_sure)]


class Factor(UnmaskingPolicy):
    """Commits the most probable candidates while (r + 1)(1 - p) <= factor for the r-th of
    them, and always the best one. The more are written in parallel, the more probable
    each must be.
    """

    uses_quota: ClassVar[bool] = False

    factor: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """The bound on (r + 1)(1 - p); the larger, the more tokens at once."""

    def choose(self, step: UnmaskingStep) -> Ids:
        order = surest(step.confidences)
        ranks = np.arange(1, len(order) + 1)
        is_accepted = step.confidences[order] >= 1 - self.factor / (ranks + 1)
        num_accepted = int(np.cumprod(is_accepted).sum())
        return order[: max(1, num_accepted)]
