"""The policy that noises again, in each step, what it is not sure of."""

from typing import ClassVar

from pydantic import Field

from dise_core import Confidence, Ids, RenoisingPolicy, UnmaskingStep
from dise_core.params.base import MAX_STEPS
from dise_strategies.unmasking.ranked import surest


class EntropyBoundRenoise(RenoisingPolicy):
    """Accepts the candidates of lowest entropy while the entropies of those before them, in
    nats, add up to no more than the bound; all else becomes random tokens, those accepted
    in the step before too. The settings are named as transformers' `generate` names
    them. Source: DiffusionGemma.
    """

    confidence: ClassVar[Confidence] = "entropy"

    max_denoising_steps: int = Field(default=48, ge=1, le=MAX_STEPS)
    """The most steps of a canvas."""
    entropy_bound: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """Entropy, in nats, that the accepted tokens but the last have together at most."""
    t_max: float = Field(default=0.8, gt=0, allow_inf_nan=False)
    """The temperature of a canvas's first step."""
    t_min: float = Field(default=0.4, gt=0, allow_inf_nan=False)
    """The temperature towards which it falls, step by step evenly."""
    stability_threshold: int = Field(default=1, ge=0, le=MAX_STEPS)
    """A canvas is finished early if its likeliest tokens were the same in so many steps before."""
    confidence_threshold: float = Field(default=0.005, ge=0, allow_inf_nan=False)
    """A canvas is finished early only if its mean entropy, in nats, is below this."""

    @property
    def num_steps(self) -> int:
        return self.max_denoising_steps

    def temperature(self, index: int) -> float:
        num_left = self.max_denoising_steps - index
        return self.t_min + (self.t_max - self.t_min) * num_left / self.max_denoising_steps

    def choose(self, step: UnmaskingStep) -> Ids:
        order = surest(step.confidences)
        entropies = -step.confidences[order]
        return order[entropies.cumsum() - entropies <= self.entropy_bound]

    def is_finished(self, step: UnmaskingStep) -> bool:
        is_sure = -step.confidences.mean() < self.confidence_threshold
        return bool(is_sure and step.num_stable >= self.stability_threshold)
