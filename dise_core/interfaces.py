"""What can be replaced beside the model: selectors, scorers, length controllers, unmasking
policies.

All are strategies: frozen pydantic models whose fields are their settings, so unknown
settings fail and no request's state can live in them. Override the abstract methods, nothing else,
and register the class in a plugin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from dise_core.arrays import Floats, Ids, Mask
from dise_core.noise import Noise
from dise_core.outputs import Generation, Score
from dise_core.reading import Confidence, Plan
from dise_core.sequence import TokenSequence

if TYPE_CHECKING:
    from dise_core.denoise import Denoiser
    from dise_core.scoring import SequenceScorer


class Strategy(BaseModel, ABC):
    """Base of all strategies: its fields are its settings; frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Selector(Strategy):
    """Chooses the positions that a score is taken over: the paper's binary mask M."""

    @abstractmethod
    def select(self, sequence: TokenSequence) -> Mask:
        """Return M, bool [N]. Leaves the sequence unchanged; an empty choice is allowed."""


class Scorer(Strategy):
    """Says how sure the model is of a finished text. Higher is surer."""

    default_selector: ClassVar[str] = "last-10"
    """The positions that it scores where the user names none."""

    asks: ClassVar[Literal["target", "judge"]] = "target"
    """Whom it asks: the diffusion model itself, or an auto-regressive judge, in whose tokens it is
    then handed the text, with a selector of the whole response."""

    @abstractmethod
    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        """Return a plan of the text's score over the positions that the selector chooses."""


class LengthController(Strategy):
    """Decides how long the response becomes, and denoises it."""

    @abstractmethod
    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        """Return a plan of the response to prompt, int64 [P]; the base length is
        `denoiser.max_tokens`.

        Raises InputError before it reads anything if the settings do not fit the request.
        """


@dataclass(frozen=True, slots=True, eq=False)
class UnmaskingStep:
    """What a policy may look at: the masked positions of the block and the model's confidence in
    each candidate.

    positions: int64 [M], ascending. confidences: float64 [M], of the policy's kind. quota: how many
    tokens the schedule commits in this step, 1..M, or 0 for a policy that does not use it. share:
    the same as a share of M, 1 at the last step.
    """

    positions: Ids
    confidences: Floats
    quota: int
    share: float
    noise: Noise

    def random(self) -> Floats:
        """Return one uniform number per position, independent of those that drew the candidates,
        float64 [M].
        """
        return self.noise.uniforms(self.positions, purpose=1)


class UnmaskingPolicy(Strategy):
    """Chooses which masked positions are committed in a denoising step."""

    confidence: ClassVar[Confidence] = "probability"
    """The kind of confidence that the policy ranks by."""

    uses_quota: ClassVar[bool] = True
    """Whether the policy commits what the schedule says; False for one that decides how many by
    itself.
    """

    @property
    def is_random(self) -> bool:
        """Whether two samples may differ though every token is the likeliest one."""
        return False

    @abstractmethod
    def choose(self, step: UnmaskingStep) -> Ids:
        """Return indices into step.positions, int64, each at most once; at least one where the
        policy uses the quota.
        """
