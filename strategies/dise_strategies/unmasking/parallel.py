"""The policy that ignores the schedule and commits what is sure enough. Source: Fast-dLLM."""

from typing import ClassVar

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
