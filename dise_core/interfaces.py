"""The strategies that plugins may add: selectors, scorers, length controllers, unmasking policies,
revisers.

Each is a frozen pydantic model whose fields are its settings, so unknown settings fail and no
instance can hold a request's state. Override only the abstract methods and the documented class
attributes and properties, and register the class in a plugin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
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
    """Base of all strategies: frozen, its fields are its settings, unknown settings are refused.

    The text below a field is its description where settings are listed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Selector(Strategy):
    """Chooses the positions that a score averages over: the paper's binary mask M."""

    @abstractmethod
    def select(self, sequence: TokenSequence) -> Mask:
        """Return M, bool [N], leaving the sequence unchanged. Selecting nothing is allowed."""


class Scorer(Strategy):
    """Measures how sure a model is of a finished text. Higher is surer."""

    default_selector: ClassVar[str] = "last-10"
    """The name of the selector that it uses where the user names none."""

    asks: ClassVar[Literal["target", "judge"]] = "target"
    """Which model it reads: "target", the diffusion model, or "judge", the auto-regressive judge.
    A scorer that asks the judge gets the text in the judge's tokens and a selector of the whole
    response."""

    reads_end: ClassVar[bool] = True
    """Whether a response given as text is scored with the end token that follows it, as one that
    the model wrote; False for a likelihood of the response alone."""

    @abstractmethod
    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        """Return a plan of the text's score over the selected positions; -inf if there are none."""


class LengthController(Strategy):
    """Decides the length of the response, and denoises it."""

    @abstractmethod
    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        """Return a plan of the finished response to prompt, int64 [P], and its evaluation.

        `denoiser.max_tokens` is the base length. Raises InputError before its first read if the
        settings do not fit the request.
        """


class Reviser(Strategy):
    """Looks at a finished response again, and rewrites what it doubts."""

    @abstractmethod
    def revise(
        self, generation: Generation, denoiser: Denoiser, scorer: SequenceScorer
    ) -> Plan[Generation]:
        """Return a plan of the response as it stands after the revision: the text and its
        evaluation, with a Revision for each round in `revisions`.

        The text keeps the prompt, holds no mask, and has no more response tokens than the given one
        or, if that is more, `denoiser.max_tokens`. Where it differs from the given one, an accepted
        Revision tells it. `generation.evaluation.tokens` reports on every token of the given
        response, as `scorer.evaluate` does on a new one. `denoiser.rewrite` writes chosen tokens
        again; its noise is not that of the first writing, so steps may count from 0.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """The committed tokens of a block that is not finished, and what the model would write instead.

    positions, token_ids: int64 [E], what stands where. candidates: int64 [E]; confidences: float64
    [E], those of the candidates.
    """

    positions: Ids
    token_ids: Ids
    candidates: Ids
    confidences: Floats


@dataclass(frozen=True, slots=True, eq=False)
class UnmaskingStep:
    """What a policy decides by: the masked positions of the block and the model's confidence in the
    candidate at each.

    positions: int64 [M], ascending. confidences: float64 [M], of the kind `policy.confidence`.
    quota: how many tokens the schedule commits in this step, 1..M; it may be 0 for a policy that
    does not use it. share: the share of M that the schedule commits, in (0, 1]. block_start: the
    position where the block begins, which may be the prompt's. drafts: for a policy that edits.
    """

    positions: Ids
    confidences: Floats
    quota: int
    share: float
    noise: Noise
    block_start: int = 0
    drafts: Drafts | None = None

    def random(self) -> Floats:
        """Return float64 [M], uniform in [0, 1), independent of the noise of the candidates."""
        return self.noise.uniforms(self.positions, purpose=1)


class UnmaskingPolicy(Strategy):
    """Chooses which masked positions a denoising step commits."""

    confidence: ClassVar[Confidence] = "probability"
    """The kind of confidence that the policy ranks by."""

    uses_quota: ClassVar[bool] = True
    """Whether the policy commits the schedule's quota; False if it decides by itself how many."""

    default_tokens_per_step: ClassVar[int | None] = None
    """The schedule's tokens_per_step where the request sets neither that nor steps; None: the
    option's own default."""

    edits: ClassVar[bool] = False
    """Whether it may replace committed tokens of the block that is being denoised. A stream then
    sends a block's text when the block is finished."""

    @property
    def num_post_steps(self) -> int:
        """How many steps a policy that edits gets at most after a block's last mask is filled; the
        first one that changes nothing ends the block.
        """
        return 0

    @property
    def is_random(self) -> bool:
        """Whether two samples may differ at temperature 0."""
        return False

    @abstractmethod
    def choose(self, step: UnmaskingStep) -> Ids:
        """Return distinct indices into step.positions, int64; for a policy that uses the quota, at
        least one and at most `step.quota`.
        """

    def edit(self, step: UnmaskingStep) -> Ids:  # noqa: ARG002
        """Return distinct indices into step.drafts whose candidates replace what stands there,
        int64. Asked, after `choose`, of a policy that edits; also where no mask is left.
        """
        return np.zeros(0, np.int64)
