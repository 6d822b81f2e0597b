"""Policies that commit the quota's number of candidates of highest confidence."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from dise_core import Confidence, Floats, Ids, UnmaskingPolicy, UnmaskingStep


def surest(confidences: Floats) -> Ids:
    """Return the indices by falling confidence; of equals, the leftmost first."""
    return (-confidences).argsort(kind="stable")


class RankedPolicy(UnmaskingPolicy):
    """Commits the quota's number of candidates of highest confidence; of equals, the
    leftmost. With alg_temp > 0 they are drawn without replacement from softmax(confidence
    / alg_temp), as in Dream.
    """

    alg_temp: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Above 0, candidates are drawn from softmax(confidence / alg_temp) instead of ranked."""

    @property
    def is_random(self) -> bool:
        return self.alg_temp > 0

    def choose(self, step: UnmaskingStep) -> Ids:
        keys = step.confidences
        # The top k of logits with Gumbel noise are k draws without replacement from their
        # softmax.
        if self.alg_temp > 0:
            uniforms = np.clip(step.random(), 1e-300, 1 - 2**-53)
            keys = keys / self.alg_temp - np.log(-np.log(uniforms))
        return surest(keys)[: step.quota]


class LowConfidence(RankedPolicy):
    """Ranks by the candidate's probability: LLaDA's low-confidence, Dream's maskgit_plus."""

    confidence: ClassVar[Confidence] = "probability"


class Entropy(RankedPolicy):
    """Ranks by the negative entropy of the position's distribution. Source: Dream."""

    confidence: ClassVar[Confidence] = "entropy"


class Margin(RankedPolicy):
    """Ranks by the margin between the two likeliest tokens' probabilities: Dream's topk_margin."""

    confidence: ClassVar[Confidence] = "margin"
