"""Policies that commit as many candidates as the model is sure of, whatever the schedule says.
Source: Fast-dLLM.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from dise_core import UnmaskingPolicy, UnmaskingStep
from dise_core.arrays import Ids


class Threshold(UnmaskingPolicy):
    """Commits every candidate of at least this probability, and always the best one."""

    uses_quota: ClassVar[bool] = False

    threshold: float = Field(0.9, ge=0, le=1)

    def choose(self, step: UnmaskingStep) -> Ids:
        """Return the indices, the most probable first."""
        order = np.argsort(-step.confidences, kind="stable")
        return order[: max(1, int((step.confidences >= self.threshold).sum()))]


class Factor(UnmaskingPolicy):
    """Commits the r most probable candidates for the largest r up to which (r + 1)(1 - p) stays
    within the factor.

    The best one is always committed. Tokens written together may be wrong together: the more there
    are, the surer each must be.
    """

    uses_quota: ClassVar[bool] = False

    factor: float = Field(1.0, gt=0, allow_inf_nan=False)

    def choose(self, step: UnmaskingStep) -> Ids:
        """Return the indices, the most probable first."""
        order = np.argsort(-step.confidences, kind="stable")
        ranks = np.arange(1, len(order) + 1)
        is_accepted = step.confidences[order] >= 1 - self.factor / (ranks + 1)
        is_accepted[0] = True
        return order[: len(order) if is_accepted.all() else int(np.argmin(is_accepted))]
