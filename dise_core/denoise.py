"""Semi-autoregressive denoising as a plan: blocks from left to right, the surest tokens of a block first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np

from dise_core.arrays import Ids
from dise_core.errors import InputError, PlanError
from dise_core.interfaces import UnmaskingPolicy, UnmaskingStep
from dise_core.noise import Noise
from dise_core.reading import Candidates, Guidance, Plan, Read
from dise_core.sequence import SpecialTokens, TokenSequence


@dataclass(frozen=True, slots=True)
class Denoiser:
    """Writes responses by filling masks; its settings are those of one request.

    max_tokens: the base length of a response. max_length: the longest text that the model takes. Exactly one schedule
    holds: `steps` denoising steps spread evenly over the blocks of a canvas, or else `tokens_per_step` a step.
    `forbidden` ids are never written; the mask id never is. `cfg_scale` > 0 adds classifier-free guidance against the same
    canvas with its prompt masked.
    """

    special: SpecialTokens
    policy: UnmaskingPolicy
    noise: Noise
    max_tokens: int
    max_length: int
    block_length: int = 32
    tokens_per_step: int = 2
    steps: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    cfg_scale: float = 0.0
    forbidden: tuple[int, ...] = ()

    @property
    def mask_id(self) -> int:
        """The id of the mask token. Raises InputError for a model that has none."""
        if self.special.mask_id is None:
            raise InputError("this model has no mask token, so it cannot denoise; use a diffusion language model", "model")
        return self.special.mask_id

    def write(self, prompt: Ids, num_tokens: int) -> Plan[TokenSequence]:
        """Return a plan of the text [P; R] with a response of num_tokens tokens."""
        canvas = np.concatenate([prompt, np.full(num_tokens, self.mask_id)])
        ids = yield from self.denoise(canvas, len(prompt), len(prompt))
        return TokenSequence(ids, len(prompt), self.special, self.block_length)

    def denoise(self, canvas: Ids, start: int, prompt_length: int, first_step: int = 0) -> Plan[Ids]:
        """Return a plan of canvas, int64 [N], with every mask from `start` on filled; the argument stays unchanged.

        Blocks of block_length count from `start`; the last may be shorter. Denoising steps count from `first_step`, which
        keys the sampling noise, so a second pass over one request must begin where it draws anew.
        """
        canvas = canvas.copy()
        blocks = list(self._blocks(canvas, start))
        step = first_step
        for index, block in enumerate(blocks):
            quotas = self._quotas(len(block), index, len(blocks))
            while len(masked := block[canvas[block] == self.mask_id]):
                noise = self.noise.at_step(step)
                [reading] = yield [self._read(canvas, masked, noise, prompt_length)]
                quota = min(next(quotas), len(masked))
                chosen = self.policy.choose(UnmaskingStep(masked, reading.confidences, quota, noise))
                if len(chosen) == 0:
                    raise PlanError(f"unmasking policy {self.policy!r} chose no token, so denoising would never end")
                canvas[masked[chosen]] = reading.token_ids[chosen]
                step += 1
        return canvas

    def _blocks(self, canvas: Ids, start: int) -> Iterator[Ids]:
        """Yield the masked positions of each block that has any."""
        for first in range(start, len(canvas), self.block_length):
            masked = first + np.flatnonzero(canvas[first : first + self.block_length] == self.mask_id)
            if len(masked):
                yield masked

    def _quotas(self, num_masked: int, block: int, num_blocks: int) -> Iterator[int]:
        """Yield how many tokens each step of a block commits, without end: a policy may commit fewer than its quota.

        With `steps`, the first steps take one more where it does not divide evenly, as in LLaDA's sampler.
        """
        if self.steps is None:
            return repeat(self.tokens_per_step)
        steps = min(max(1, _share(self.steps, block, num_blocks)), num_masked)
        return chain((_share(num_masked, step, steps) for step in range(steps)), repeat(1))

    def _read(self, canvas: Ids, masked: Ids, noise: Noise, prompt_length: int) -> Read:
        candidates = Candidates(
            self.temperature,
            self.top_p,
            self.top_k,
            noise,
            self.policy.confidence,
            (self.mask_id, *self.forbidden),
        )
        guidance = None
        if self.cfg_scale:
            unconditional = canvas.copy()
            unconditional[:prompt_length] = self.mask_id
            guidance = Guidance(unconditional, self.cfg_scale)
        return Read(canvas.copy(), masked, candidates, guidance=guidance)


def _share(total: int, index: int, parts: int) -> int:
    """Return the index-th of `parts` nearly equal shares of total: the first ones take the remainder."""
    return total // parts + (index < total % parts)
