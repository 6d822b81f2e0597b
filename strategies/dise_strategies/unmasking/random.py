"""Policies that commit positions at random, whatever the model is sure of."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dise_core import UnmaskingPolicy, UnmaskingStep
from dise_core.arrays import Ids


class RandomUnmasking(UnmaskingPolicy):
    """Commits the schedule's quota of positions, drawn uniformly. Source: LLaDA."""

    @property
    def is_random(self) -> bool:
        """True."""
        return True

    def choose(self, step: UnmaskingStep) -> Ids:
        """Return the indices of a quota of positions, drawn by the request's own noise."""
        return np.argsort(step.random(), kind="stable")[: step.quota]


class Origin(UnmaskingPolicy):
    """Commits each masked position by itself with the probability that the schedule gives; at times
    none. Source: Dream.
    """

    uses_quota: ClassVar[bool] = False

    @property
    def is_random(self) -> bool:
        """True."""
        return True

    def choose(self, step: UnmaskingStep) -> Ids:
        """Return the indices that the request's own noise picks."""
        return np.flatnonzero(step.random() < step.share)
