"""Semi-autoregressive denoising as a plan: block by block from left to right, and within a block
in the order that the unmasking policy chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dise_core.arrays import Ids
from dise_core.blocks import BlockGrid
from dise_core.cache import Caching
from dise_core.checks import checked_choice
from dise_core.errors import InputError, PlanError
from dise_core.interfaces import UnmaskingPolicy, UnmaskingStep
from dise_core.model import ModelInfo
from dise_core.noise import Noise
from dise_core.params import SamplingParams
from dise_core.reading import (
    CacheHint,
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
from dise_core.sequence import SpecialTokens, TokenSequence

MAX_IDLE_STEPS = 100
"""Consecutive steps without a commit after which a policy without a quota fails: one that draws at
random may commit nothing now and then.
"""


@dataclass(frozen=True, slots=True)
class Denoiser:
    """Writes one response by filling its masks, with the settings of one request.

    params: only the fields for schedule, blocks, sampling, guidance, cache and early exit are read
    here. The mask id is never written. `sample`: which of the request's responses this is.
    `is_settled`: see Canvas.
    """

    info: ModelInfo
    policy: UnmaskingPolicy
    noise: Noise
    params: SamplingParams
    sample: int = 0
    is_settled: bool = False

    @property
    def special(self) -> SpecialTokens:
        """The model's special tokens."""
        return self.info.special

    @property
    def max_length(self) -> int:
        """The longest text that the model accepts, in tokens."""
        return self.info.max_length

    @property
    def max_tokens(self) -> int:
        """The base length of a response."""
        return self.params.max_tokens

    @property
    def block_length(self) -> int:
        """Tokens in a block."""
        return self.params.block_length

    def once(self) -> Denoiser:
        """Return the denoiser of a response that is written only once: committed tokens never
        change, so a stream may send them.
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
        """Tokens to commit per step where `denoise` is given no number of steps: tokens_per_step,
        or ceil(max_tokens / steps) where the request sets `steps`.
        """
        steps = self.params.steps
        return self.params.tokens_per_step if steps is None else -(-self.max_tokens // steps)

    def text(self, ids: Ids, prompt_length: int) -> TokenSequence:
        """Return ids [N] as a text whose first prompt_length tokens are the prompt. Raises
        InputError for a prompt_length outside [0, N].
        """
        settings = (self.block_length, self.max_length, self.info.block_origin)
        return TokenSequence(ids, prompt_length, self.special, *settings)

    def masks(self, count: int) -> Ids:
        """Return mask ids, int64 [count]. Raises InputError for a model without a mask token."""
        return np.full(count, self.mask_id)

    def caching(self, most: int = 0) -> Caching:
        """Return the cache state to pass to every call of `write` and `denoise` for one response,
        so that the context before its tail is computed once.
        """
        return Caching(self.params.cache, min(most, self.max_length))

    def write(
        self, prompt: Ids, num_tokens: int, caching: Caching | None = None
    ) -> Plan[TokenSequence]:
        """Return a plan of the text [P; R], its response R of num_tokens tokens denoised. Raises
        what `denoise` raises.
        """
        canvas = np.concatenate([prompt, self.masks(num_tokens)])
        ids = yield from self.denoise(
            canvas, len(prompt), len(prompt), steps=self.params.steps, caching=caching
        )
        return self.text(ids, len(prompt))

    def denoise(
        self,
        canvas: Ids,
        start: int,
        prompt_length: int,
        *,
        first_step: int = 0,
        steps: int | None = None,
        caching: Caching | None = None,
    ) -> Plan[Ids]:
        """Return a plan of canvas, int64 [N], with every mask from `start` on filled; the argument
        stays unchanged.

        Blocks count from `start`, or from position 0 where the model's attention is block-causal;
        the first and the last may be shorter. `steps` are spread over the blocks that hold a mask;
        None commits `rate` tokens per step. Denoising steps count from `first_step` and key the
        sampling noise, so another pass over the same response must start at a step not yet used.
        `caching`: that of an earlier call for the same response. Raises PlanError for a policy that
        commits nothing for too long, InputError for a model without a mask token.
        """
        canvas, step = canvas.copy(), first_step
        caching = caching or self.caching()
        # Only a tail has a context to reuse; a response written from its start has none.
        caching.begin(canvas[: start if start > prompt_length else 0])
        blocks = list(self._blocks(canvas, start))
        for index, block in enumerate(blocks):
            num_steps = None if steps is None else max(1, share(steps, index, len(blocks)))
            schedule = self._schedule(len(block), num_steps)
            step = yield from self._fill(canvas, block, schedule, step, prompt_length, caching)
            caching.end_block()
        return canvas

    def candidates(self, noise: Noise, confidence: Confidence = "probability") -> Candidates:
        """Return the readout that picks one token per position with this request's settings. Raises
        InputError for a model without a mask token.
        """
        params = self.params
        drawing = (params.temperature, params.top_p, params.top_k, noise)
        forbidden = (self.mask_id, *params.forbidden_token_ids, *self._unwritten_end)
        is_tempered = params.tempered_confidence
        if is_tempered is None:
            is_tempered = self.info.tempered_confidence
        return Candidates(*drawing, confidence, forbidden, is_tempered, self._unranked)

    def ask(
        self,
        canvas: Ids,
        positions: Ids,
        readout: Readout,
        prompt_length: int,
        cache: CacheHint | None = None,
    ) -> Read:
        """Return a Read of a copy of the canvas, with this request's guidance. Raises PlanError for
        positions outside the canvas.
        """
        guidance = None
        if scale := self.params.cfg_scale:
            unconditional = canvas.copy()
            unconditional[:prompt_length] = self.mask_id
            guidance = Guidance(unconditional, scale)
        shown = Canvas(self.sample, prompt_length, self.is_settled)
        return Read(canvas.copy(), positions, readout, guidance=guidance, canvas=shown, cache=cache)

    def _fill(
        self,
        canvas: Ids,
        block: Ids,
        schedule: Schedule,
        step: int,
        prompt_length: int,
        caching: Caching,
    ) -> Plan[int]:
        """Fill the block's masks in place and return the number of the next step."""
        num_idle, is_first, mask_id = 0, True, self.mask_id
        while len(masked := block[canvas[block] == mask_id]):
            commit = schedule.next(len(masked))
            # A step of Dream's schedule that would commit nothing needs no forward pass.
            if commit.quota == 0 and self.policy.uses_quota:
                continue
            noise = self.noise.at_step(step)
            drawn = self.candidates(noise, self.policy.confidence)
            # Early exit judges all that is still masked, so a block's first step reads past it.
            looks_ahead = is_first and self.params.early_exit is not None
            asked = self._rest(canvas, block) if looks_ahead else masked
            hint = caching.hint(block, len(canvas), is_first)
            [reading] = yield [self.ask(canvas, asked, drawn, prompt_length, hint)]
            if looks_ahead and self._is_over(reading):
                canvas[asked] = reading.token_ids
                return step + 1
            reading = reading.at(asked <= masked[-1]) if looks_ahead else reading
            look = UnmaskingStep(masked, reading.confidences, commit.quota, commit.share, noise)
            chosen = checked_choice(self.policy, self.policy.choose(look), len(masked))
            num_idle = 0 if len(chosen) else num_idle + 1
            self._check_idle(num_idle)
            canvas[masked[chosen]] = reading.token_ids[chosen]
            step, is_first = step + 1, False
        return step

    def _check_idle(self, num_steps: int) -> None:
        """Raise PlanError if num_steps steps in a row without a commit are too many."""
        if num_steps == MAX_IDLE_STEPS or (num_steps and self.policy.uses_quota):
            raise PlanError(
                f"unmasking policy {self.policy!r} chose no token, so denoising would never end"
            )

    def _rest(self, canvas: Ids, block: Ids) -> Ids:
        """Return all masked positions from the block's first one to the end of the canvas."""
        masked: Ids = block[0] + np.flatnonzero(canvas[block[0] :] == self.mask_id)
        return masked

    def _is_over(self, reading: Reading) -> bool:
        """Return whether all candidates are end tokens, each more probable than early_exit."""
        sure = np.exp(reading.logprobs.min()) > (self.params.early_exit or 0.0)
        return bool(sure and self.special.is_end(reading.token_ids).all())

    def _blocks(self, canvas: Ids, start: int) -> Iterator[Ids]:
        """Yield the masked positions of each block that has any."""
        grid = BlockGrid(self.block_length, start if self.info.block_origin == "response" else 0)
        for first, last in grid.spans(start, len(canvas)):
            masked = first + np.flatnonzero(canvas[first:last] == self.mask_id)
            if len(masked):
                yield masked

    def _schedule(self, num_masked: int, num_steps: int | None) -> Schedule:
        """Return the schedule of one block: in num_steps steps, or at `rate` for None."""
        if self.params.eps is not None:
            return in_time(num_steps or -(-num_masked // self.rate), self.params.eps)
        return at_rate(self.rate) if num_steps is None else in_steps(num_masked, num_steps)

    @property
    def _unwritten_end(self) -> tuple[int, ...]:
        """The end token if logits_eos_inf forbids it, else nothing."""
        end = self.special.eos_id
        return () if end is None or not self.params.logits_eos_inf else (end,)

    @property
    def _unranked(self) -> tuple[int, ...]:
        """The end tokens that are left out of the confidences."""
        is_last = self.params.confidence_eos_eot_inf
        return tuple(sorted(self.special.eos_ids)) if is_last else self._unwritten_end
