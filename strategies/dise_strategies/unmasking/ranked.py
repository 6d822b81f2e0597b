"""Policies that commit the schedule's quota of the candidates that the model is surest of."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from dise_core import UnmaskingPolicy, UnmaskingStep
from dise_core.arrays import Ids
from dise_core.reading import Confidence


class RankedPolicy(UnmaskingPolicy):
    """Commits the quota's candidates of highest confidence; of equals the one further left.

    With `alg_temp` above 0 they are drawn without replacement from softmax(confidence / alg_temp)
    instead. Source: Dream.
    """

    alg_temp: float = Field(0.0, ge=0, allow_inf_nan=False)

    @property
    def is_random(self) -> bool:
        """Whether candidates are drawn."""
        return self.alg_temp > 0

    def choose(self, step: UnmaskingStep) -> Ids:
        """Return the indices of the quota's candidates, the first-ranked first."""
        keys = step.confidences
        if self.alg_temp > 0:
            keys = keys / self.alg_temp - np.log(
                -np.log(np.clip(step.random(), 1e-300, 1 - 2**-53))
            )
        return np.argsort(-keys, kind="stable")[: step.quota]


class LowConfidence(RankedPolicy):
    """Ranks by the candidate's probability: LLaDA's low-confidence remasking, and Dream's
    maskgit_plus.
    """

    confidence: ClassVar[Confidence] = "probability"


class Entropy(RankedPolicy):
    """Ranks by how low the entropy of the position's distribution is. Source: Dream."""

    confidence: ClassVar[Confidence] = "entropy"


class Margin(RankedPolicy):
    """Ranks by the probability of the likeliest token minus that of the second: Dream's
    topk_margin.
    """

    confidence: ClassVar[Confidence] = "margin"
