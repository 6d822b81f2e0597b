"""LLaDA's random remasking."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dise_core import UnmaskingPolicy, UnmaskingStep
from dise_core.arrays import Ids


class RandomUnmasking(UnmaskingPolicy):
    """Commits positions drawn uniformly, whatever the model is sure of."""

    is_random: ClassVar[bool] = True

    def choose(self, step: UnmaskingStep) -> Ids:
        """Return the indices of a quota of positions, drawn by the request's own noise."""
        return np.argsort(step.random(), kind="stable")[: step.quota]
