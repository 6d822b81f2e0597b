"""LLaDA's low-confidence remasking, told from its other end: the surest tokens are kept."""

from __future__ import annotations

import numpy as np

from dise_core import UnmaskingPolicy, UnmaskingStep
from dise_core.arrays import Ids


class LowConfidence(UnmaskingPolicy):
    """Commits the candidates of highest probability; of equals the one further left."""

    def choose(self, step: UnmaskingStep) -> Ids:
        """Return the indices of the quota's surest candidates."""
        return np.argsort(-step.confidences, kind="stable")[: step.quota]
