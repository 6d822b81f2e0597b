"""Unmasking policies choose which masks a denoising step fills."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field

from dise_core.arrays import Floats, Ids
from dise_core.noise import Noise
from dise_core.params.requests import SamplingParams
from dise_core.plans.readouts import Confidence
from dise_core.scoring.strategy import Strategy


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """The committed tokens of a block that is not finished, and what the model would
    write instead.

    positions, token_ids: int64 [E], what stands where. candidates: int64 [E];
    confidences: float64 [E], those of the candidates.
    """

    positions: Ids
    token_ids: Ids
    candidates: Ids
    confidences: Floats


@dataclass(frozen=True, slots=True, eq=False)
class UnmaskingStep:
    """What a policy decides by: the block's masked positions and the candidates'
    confidences.

    positions: int64 [M], ascending. confidences: float64 [M], of the kind
    `policy.confidence`.
    quota: how many tokens the schedule commits in this step, 1..M; it may be 0 for a
    policy that does not use it. share: the share of M that the schedule commits, in (0,
    1]. block_start: the position where the block begins, which may be the prompt's.
    drafts: for a policy that edits. num_stable: for one that re-noises, the steps before
    this one, in a row, whose likeliest tokens were those of this step.
    """

    positions: Ids
    confidences: Floats
    quota: int
    share: float
    noise: Noise
    block_start: int = 0
    drafts: Drafts | None = None
    num_stable: int = 0

    def random(self) -> Floats:
        """Return float64 [M], uniform in [0, 1), independent of the candidates' noise."""
        return self.noise.uniforms(self.positions, purpose=1)


class UnmaskingPolicy(Strategy):
    """Chooses which masked positions a denoising step commits."""

    confidence: ClassVar[Confidence] = "probability"
    """The kind of confidence that the policy ranks by."""

    uses_quota: ClassVar[bool] = True
    """Whether it commits the schedule's quota; False if it decides how many."""

    default_tokens_per_step: ClassVar[int | None] = None
    """The schedule's tokens_per_step where the request sets neither that nor steps; None:
    the option's own default."""

    edits: ClassVar[bool] = False
    """Whether it may replace committed tokens of the block that is being denoised. A
    stream then sends a block's text when the block is finished."""

    eps: float | None = Field(default=None, gt=0, lt=1)
    """Dream's schedule: the steps are even in diffusion time, which falls from 1 to eps,
    instead of in tokens."""
    logits_eos_inf: bool = False
    """Never write the end token, and leave it out of the confidences, as LLaDA's option."""
    confidence_eos_eot_inf: bool = False
    """Commit end tokens last: they count for nothing in the confidences, as LLaDA's option."""
    tempered_confidence: bool | None = None
    """Rank candidates after temperature, top_p and top_k, as Dream, or before, as LLaDA;
    without it as the model's own sampler."""

    def rate_of(self, params: SamplingParams) -> int:
        """Return the tokens to commit per step where `denoise` gets no `steps`:
        ceil(max_tokens / steps) of the request, else its tokens_per_step, else the
        policy's own.
        """
        if params.steps is not None:
            return -(-params.max_tokens // params.steps)
        if "tokens_per_step" in params.model_fields_set:
            return params.tokens_per_step
        return self.default_tokens_per_step or params.tokens_per_step

    @property
    def num_post_steps(self) -> int:
        """The most steps after a block's last mask, for a policy that edits."""
        return 0

    @property
    def is_random(self) -> bool:
        """Whether two samples may differ at temperature 0."""
        return False

    @abstractmethod
    def choose(self, step: UnmaskingStep) -> Ids:
        """Return distinct indices into step.positions, int64; 1 to a used quota."""

    def edit(self, step: UnmaskingStep) -> Ids:  # noqa: ARG002
        """Return distinct indices into step.drafts whose candidates replace what stands
        there, int64. Asked, after `choose`, of a policy that edits; also where no mask is
        left.
        """
        return np.zeros(0, np.int64)


class RenoisingPolicy(UnmaskingPolicy):
    """Chooses in each step anew, among candidates drawn for the whole block, which ones
    stand in the next: all other tokens are hidden again. A block ends as the likeliest
    tokens of its last step. For models of uniform noise.
    """

    uses_quota: ClassVar[bool] = False
    edits: ClassVar[bool] = True

    @property
    def is_random(self) -> bool:
        return True

    @property
    @abstractmethod
    def num_steps(self) -> int:
        """The most steps of a block, at least 1."""

    @abstractmethod
    def temperature(self, index: int) -> float:
        """Return the temperature, above 0, of a block's step, counted from 0: candidates
        are drawn, and confidences taken, at it.
        """

    @abstractmethod
    def is_finished(self, step: UnmaskingStep) -> bool:
        """Return whether the step is the block's last; its positions are all of them."""
