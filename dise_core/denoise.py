"""Semi-autoregressive denoising as a plan: blocks from left to right, the surest tokens of a block
first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from dise_core.arrays import Ids
from dise_core.errors import InputError, PlanError
from dise_core.interfaces import UnmaskingPolicy, UnmaskingStep
from dise_core.noise import Noise
from dise_core.reading import (
    CacheHint,
    CacheKind,
    CacheSlot,
    Candidates,
    Canvas,
    Confidence,
    Guidance,
    Plan,
    Read,
    Reading,
    Readout,
)
from dise_core.schedule import Schedule, at_rate, in_steps, in_time, share
from dise_core.sequence import SpecialTokens, TokenSequence, Translate

MAX_IDLE_STEPS = 100
"""Steps in a row in which a policy may commit nothing. One that draws at random may, now and then.
"""


@dataclass(frozen=True, slots=True)
class Denoiser:
    """Writes responses by filling masks; its settings are those of one request.

    max_tokens: the base length of a response. max_length: the longest text that the model takes.
    Exactly one schedule
    holds: `steps` denoising steps spread evenly over the blocks of a response of max_tokens, or
    else `tokens_per_step` a step; with `eps` the steps are even in time instead of in tokens.
    `forbidden` ids are never written; the mask id never is. `cfg_scale` > 0 adds classifier-free
    guidance against the same canvas with its prompt masked. `sample`: which of the request's
    responses this is. `cache`: after a block's first step run only what follows its start
    ("prefix") or only the block ("dual") against kept keys and values. Source: Fast-dLLM. Where
    only a tail of the response is written, what stands before it runs once, for this tail and for
    all that follow it there. `early_exit`: where at a block's first step every mask that is left
    would become an end token, each with more than this probability, they do and the text is done.
    `slot`: under which keys and values are kept. `is_tempered` and `unranked`: how candidates are
    ranked, see Candidates. `is_settled`: what a Canvas says of the texts under way.
    """

    special: SpecialTokens
    policy: UnmaskingPolicy
    noise: Noise
    max_tokens: int
    max_length: int
    block_length: int = 32
    tokens_per_step: int = 2
    steps: int | None = None
    eps: float | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    cfg_scale: float = 0.0
    forbidden: tuple[int, ...] = ()
    translate: Translate | None = None
    sample: int = 0
    cache: CacheKind = "none"
    early_exit: float | None = None
    slot: CacheSlot = field(default_factory=CacheSlot)
    is_tempered: bool = False
    unranked: tuple[int, ...] = ()
    is_settled: bool = False

    def once(self) -> Denoiser:
        """Return the same for a response that is written once: what it commits never changes, so a
        stream may send it.
        """
        return replace(self, is_settled=True)

    @property
    def mask_id(self) -> int:
        """The id of the mask token. Raises InputError for a model that has none."""
        if self.special.mask_id is None:
            raise InputError(
                "this model has no mask token, so it cannot denoise; use a diffusion language "
                "model",
                "model",
            )
        return self.special.mask_id

    @property
    def rate(self) -> int:
        """Tokens that a step commits where no number of steps is given: tokens_per_step, or what
        `steps` come to.
        """
        return self.tokens_per_step if self.steps is None else -(-self.max_tokens // self.steps)

    def text(self, ids: Ids, prompt_length: int) -> TokenSequence:
        """Return ids [N] as a text whose first prompt_length tokens are the prompt."""
        return TokenSequence(
            ids, prompt_length, self.special, self.block_length, self.translate, self.max_length
        )

    def masks(self, count: int) -> Ids:
        """Return `count` mask ids, int64 [count]."""
        return np.full(count, self.mask_id)

    def write(self, prompt: Ids, num_tokens: int) -> Plan[TokenSequence]:
        """Return a plan of the text [P; R] with a response of num_tokens tokens."""
        canvas = np.concatenate([prompt, self.masks(num_tokens)])
        ids = yield from self.denoise(canvas, len(prompt), len(prompt), steps=self.steps)
        return self.text(ids, len(prompt))

    def denoise(
        self,
        canvas: Ids,
        start: int,
        prompt_length: int,
        *,
        first_step: int = 0,
        steps: int | None = None,
    ) -> Plan[Ids]:
        """Return a plan of canvas, int64 [N], with every mask from `start` on filled; the argument
        stays unchanged.

        Blocks of block_length count from `start`; the last may be shorter. `steps` are spread over
        the blocks that hold a mask; None takes `rate` tokens a step. Denoising steps count from
        `first_step`, which keys the sampling noise, so a second pass over one request must begin
        where it draws anew.
        """
        canvas = canvas.copy()
        blocks = list(self._blocks(canvas, start))
        step = first_step
        context = canvas[:start].copy() if start > prompt_length else np.zeros(0, np.int64)
        for index, block in enumerate(blocks):
            schedule = self._schedule(
                len(block), None if steps is None else max(1, share(steps, index, len(blocks)))
            )
            kept = len(context) if np.array_equal(context, self.slot.context) else 0
            step = yield from self._fill(canvas, block, schedule, step, prompt_length, kept)
            self.slot.context = context
        return canvas

    def candidates(self, noise: Noise, confidence: Confidence = "probability") -> Candidates:
        """Return the readout that draws one token per position by this request's settings."""
        forbidden = (self.mask_id, *self.forbidden)
        drawing = (self.temperature, self.top_p, self.top_k, noise)
        return Candidates(*drawing, confidence, forbidden, self.is_tempered, self.unranked)

    def ask(
        self,
        canvas: Ids,
        positions: Ids,
        readout: Readout,
        prompt_length: int,
        cache: CacheHint | None = None,
    ) -> Read:
        """Return a Read of the canvas as it is now, with this request's guidance."""
        guidance = None
        if self.cfg_scale:
            unconditional = canvas.copy()
            unconditional[:prompt_length] = self.mask_id
            guidance = Guidance(unconditional, self.cfg_scale)
        shown = Canvas(self.sample, prompt_length, self.is_settled)
        return Read(canvas.copy(), positions, readout, guidance=guidance, canvas=shown, cache=cache)

    def _hint(self, block: Ids, length: int, is_first: bool, kept: int) -> CacheHint | None:
        """Return what may be kept at a step of a block, None where nothing may. kept: tokens before
        the tail that are.
        """
        if self.cache == "none":
            return None
        if is_first:
            return CacheHint(self.slot, (kept, length) if kept else None)
        return CacheHint(
            self.slot, (int(block[0]), length if self.cache == "prefix" else int(block[-1]) + 1)
        )

    def _fill(
        self, canvas: Ids, block: Ids, schedule: Schedule, step: int, prompt_length: int, kept: int
    ) -> Plan[int]:
        """Fill the block in place and return the step after the last. kept: tokens that its first
        step need not run.
        """
        num_idle, is_first = 0, True
        while len(masked := block[canvas[block] == self.mask_id]):
            commit = schedule.next(len(masked))
            if commit.quota == 0 and self.policy.uses_quota:
                continue
            noise = self.noise.at_step(step)
            readout = self.candidates(noise, self.policy.confidence)
            hint = self._hint(block, len(canvas), is_first, kept)
            looks_ahead = is_first and self.early_exit is not None
            asked = self._left(canvas, block) if looks_ahead else masked
            [reading] = yield [self.ask(canvas, asked, readout, prompt_length, hint)]
            if looks_ahead and self._is_over(reading):
                canvas[asked] = reading.token_ids
                return step + 1
            reading = reading.at(asked <= masked[-1]) if looks_ahead else reading
            is_first = False
            chosen = self.policy.choose(
                UnmaskingStep(masked, reading.confidences, commit.quota, commit.share, noise)
            )
            num_idle = 0 if len(chosen) else num_idle + 1
            if num_idle == MAX_IDLE_STEPS or (num_idle and self.policy.uses_quota):
                raise PlanError(
                    f"unmasking policy {self.policy!r} chose no token, so denoising would never end"
                )
            canvas[masked[chosen]] = reading.token_ids[chosen]
            step += 1
        return step

    def _left(self, canvas: Ids, block: Ids) -> Ids:
        """Return the masked positions from a block's first on."""
        masked: Ids = block[0] + np.flatnonzero(canvas[block[0] :] == self.mask_id)
        return masked

    def _is_over(self, reading: Reading) -> bool:
        """Return whether all candidates are end tokens, surer than early_exit."""
        sure = np.exp(reading.logprobs.min()) > (self.early_exit or 0.0)
        return bool(sure and self.special.is_end(reading.token_ids).all())

    def _blocks(self, canvas: Ids, start: int) -> Iterator[Ids]:
        """Yield the masked positions of each block that has any."""
        for first in range(start, len(canvas), self.block_length):
            masked = first + np.flatnonzero(
                canvas[first : first + self.block_length] == self.mask_id
            )
            if len(masked):
                yield masked

    def _schedule(self, num_masked: int, num_steps: int | None) -> Schedule:
        if self.eps is not None:
            return in_time(num_steps or -(-num_masked // self.rate), self.eps)
        return at_rate(self.rate) if num_steps is None else in_steps(num_masked, num_steps)
