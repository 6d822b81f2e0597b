"""Policies that commit positions at random, whatever the model's confidence."""

from typing import ClassVar

import numpy as np

from dise_core import Ids, UnmaskingPolicy, UnmaskingStep


class RandomUnmasking(UnmaskingPolicy):
    """Commits the schedule's quota of positions, drawn uniformly. Source: LLaDA."""

    @property
    def is_random(self) -> bool:
        return True

    def choose(self, step: UnmaskingStep) -> Ids:
        return step.random().argsort(kind="stable")[: step.quota]


class Origin(UnmaskingPolicy):
    """Commits each masked position independently, with the schedule's share as
    probability.

    A step may commit nothing. Source: Dream.
    """

    uses_quota: ClassVar[bool] = False

    @property
    def is_random(self) -> bool:
        return True

    def choose(self, step: UnmaskingStep) -> Ids:
        return np.flatnonzero(step.random() < step.share)
