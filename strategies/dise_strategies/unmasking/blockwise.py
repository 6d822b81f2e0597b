"""The unmasking policies of block-diffusion families, with their published defaults.

Those of a family that are here under another name: SDAR's low_confidence_static is
"low-confidence" with tokens_per_step 1, Stable-DiffCoder's "threshold" with the threshold
0.95, and LLaDA2.0's "low-confidence-dynamic" with it.
"""

from typing import ClassVar

import numpy as np
from pydantic import Field

from dise_core import Confidence, Ids, UnmaskingPolicy, UnmaskingStep
from dise_core.params.base import Length
from dise_strategies.unmasking.ranked import surest


class Sequential(UnmaskingPolicy):
    """Commits the schedule's quota from left to right, by default one a step. Source: SDAR."""

    default_tokens_per_step: ClassVar[int | None] = 1

    def choose(self, step: UnmaskingStep) -> Ids:
        return np.arange(step.quota)


class LowConfidenceDynamic(UnmaskingPolicy):
    """Commits every candidate with a probability above the threshold, or the schedule's
    quota of the most probable if these are more. The quota is one a step unless the
    request says otherwise.
    Source: SDAR.
    """

    uses_quota: ClassVar[bool] = False
    default_tokens_per_step: ClassVar[int | None] = 1

    threshold: float = Field(default=0.85, ge=0, le=1)
    """Candidates more probable than this are committed."""

    def choose(self, step: UnmaskingStep) -> Ids:
        num_sure = int((step.confidences > self.threshold).sum())
        return surest(step.confidences)[: max(num_sure, step.quota, 1)]


class LLaDA2Editing(LowConfidenceDynamic):
    """LLaDA2.1's: low-confidence-dynamic, which also edits what it has committed.

    A committed token of the block gives way to another candidate with a probability above
    `editing_threshold`. After the last mask is filled the block is read again until
    nothing changes; that pass has seen the final tokens, so DiSE of the block comes from
    it.
    """

    edits: ClassVar[bool] = True

    threshold: float = Field(default=0.95, ge=0, le=1)
    """Candidates more probable than this are committed."""
    editing_threshold: float = Field(default=0.9, ge=0, le=1)
    """A committed token gives way to a candidate more probable than this."""
    max_post_steps: int = Field(default=16, ge=0, le=2**16)
    """The most steps after a block's last mask is filled."""

    @property
    def num_post_steps(self) -> int:
        return self.max_post_steps

    def edit(self, step: UnmaskingStep) -> Ids:
        if (drafts := step.drafts) is None:
            return np.zeros(0, np.int64)
        is_other = drafts.candidates != drafts.token_ids
        return np.flatnonzero(is_other & (drafts.confidences > self.editing_threshold))


class EntropyBounded(UnmaskingPolicy):
    """Commits the candidates of lowest entropy while the entropies, in nats, add up to
    less than the bound, and always the first. Source: SDAR.
    """

    confidence: ClassVar[Confidence] = "entropy"
    uses_quota: ClassVar[bool] = False

    bound: float = Field(default=0.35, ge=0, allow_inf_nan=False)
    """Entropy, in nats, that the tokens of a step have together at most."""

    def choose(self, step: UnmaskingStep) -> Ids:
        order = surest(step.confidences)
        totals = np.cumsum(-step.confidences[order])
        return order[: max(1, int(np.searchsorted(totals, self.bound)))]


class SubBlocks(UnmaskingPolicy):
    """Fills a block by sub-blocks from left to right: in each step every candidate of the
    first one that holds a mask with a probability above the threshold, and always the
    most probable. A block's first token, known from the pass before, is committed alone.
    Source: Fast-dLLM v2.
    """

    uses_quota: ClassVar[bool] = False

    sub_block: Length = 8
    """Tokens in a sub-block."""
    threshold: float = Field(default=1.0, ge=0, le=1)
    """Candidates more probable than this are committed."""

    def choose(self, step: UnmaskingStep) -> Ids:
        offsets = step.positions - step.block_start
        if offsets[0] == 0:
            return np.zeros(1, np.int64)
        here = np.flatnonzero(offsets // self.sub_block == offsets[0] // self.sub_block)
        confidences = step.confidences[here]
        num_sure = int((confidences > self.threshold).sum())
        return here[surest(confidences)[: max(1, num_sure)]]
