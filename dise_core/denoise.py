"""Semi-autoregressive denoising as a plan: block by block from left to right, and within a block
in the order that the unmasking policy chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dise_core.arrays import Ids, LogProbs
from dise_core.biases import Biases, as_pairs
from dise_core.blocks import BlockGrid
from dise_core.cache import Caching
from dise_core.completion import border_of
from dise_core.errors import InputError
from dise_core.filling import Filling
from dise_core.finished import FinishedBlocks
from dise_core.interfaces import UnmaskingPolicy
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
    Readout,
)
from dise_core.schedule import Schedule, at_rate, in_steps, in_time, share
from dise_core.sequence import SpecialTokens, TokenSequence


@dataclass(frozen=True)
class Denoiser:
    """Writes one response by filling its masks, with the settings of one request.

    params: only the fields for schedule, blocks, sampling, guidance, cache and early exit are read
    here. The mask id is never written. `sample`: which of the request's responses this is.
    `is_settled`: see Canvas. `finished`: what is known of the response's finished blocks, for a
    block-causal model; shared with its scorer, it spares the scorer's passes. is_revised: whether a
    reviser may change the response, so that nothing of it is settled.
    """

    info: ModelInfo
    policy: UnmaskingPolicy
    noise: Noise
    params: SamplingParams
    sample: int = 0
    is_settled: bool = False
    finished: FinishedBlocks | None = None
    is_revised: bool = False

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
        """Tokens in a block: the model's own if it has blocks, else the request's."""
        return self.info.block_length or self.params.block_length

    def once(self) -> Denoiser:
        """Return the denoiser of a response that is written only once: committed tokens never
        change, so a stream may send them, unless a reviser follows.
        """
        return replace(self, is_settled=not self.is_revised)

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
        """Tokens to commit per step where `denoise` is given no number of steps: ceil(max_tokens /
        steps) where the request sets `steps`; else its tokens_per_step, or the policy's own where
        it does not set them.
        """
        if self.params.steps is not None:
            return -(-self.max_tokens // self.params.steps)
        own = self.policy.default_tokens_per_step
        if own is None or "tokens_per_step" in self.params.model_fields_set:
            return self.params.tokens_per_step
        return own

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
        self,
        prompt: Ids,
        num_tokens: int,
        caching: Caching | None = None,
        *,
        until_end: bool = False,
    ) -> Plan[TokenSequence]:
        """Return a plan of the text [P; R], its response R of num_tokens tokens denoised, or of
        fewer with until_end: see `denoise`. Raises what `denoise` raises.
        """
        canvas = np.concatenate([prompt, self.masks(num_tokens)])
        ids = yield from self.denoise(
            canvas,
            len(prompt),
            len(prompt),
            steps=self.params.steps,
            caching=caching,
            until_end=until_end,
        )
        return self.text(ids, len(prompt))

    def rewrite(
        self, text: TokenSequence, positions: Ids, first_step: int = 0
    ) -> Plan[TokenSequence]:
        """Return a plan of a finished text whose response tokens at the positions, int64 [M], are
        written again, one a step in the policy's order: over the whole response, or under
        block-causal attention block by block, each against the finished ones before it.

        There, a response in which nothing follows the first end token is cut behind the new first
        one, and a text that ends inside a block is read with end tokens, as when it was scored.
        first_step, and what it raises: see `denoise`.
        """
        once = {"tokens_per_step": 1, "steps": None, "eps": None, "early_exit": None}
        update = {"block_length": max(len(text.response), 1), **once}
        params = self.params.model_copy(update=update)
        writer = replace(self, params=params, info=replace(self.info, last_block="ends"))
        start, end = text.prompt_length, self.end_of(text.ids, text.prompt_length)
        is_cut = self.info.block_length is not None and (end is None or end == len(text))
        ids = yield from writer.denoise(
            text.with_masks(positions), start, start, first_step=first_step, until_end=is_cut
        )
        return replace(text, ids=ids)

    def denoise(
        self,
        canvas: Ids,
        start: int,
        prompt_length: int,
        *,
        first_step: int = 0,
        steps: int | None = None,
        caching: Caching | None = None,
        until_end: bool = False,
    ) -> Plan[Ids]:
        """Return a plan of canvas, int64 [N], with every mask from `start` on filled; the argument
        stays unchanged.

        until_end: stop at the first block that holds an end token, and cut the text behind its
        first one. Under block-causal attention each block is written as if the text ended with it,
        and a text that ends inside a block is written as ModelInfo.last_block says.

        Blocks count from `start`, or from position 0 where the model's attention is block-causal;
        the first and the last may be shorter. `steps` are spread over the blocks that hold a mask;
        None commits `rate` tokens per step. Denoising steps count from `first_step` and key the
        sampling noise, so another pass over the same response must start at a step not yet used.
        `caching`: that of an earlier call for the same response. Raises PlanError for a policy that
        commits nothing for too long, InputError for a model without a mask token.
        """
        stop, canvas, step = len(canvas), self._to_border(canvas), first_step
        written = np.full(len(canvas), np.nan, np.float32)
        caching, finished = caching or self.caching(), self.finished
        if finished is None and self.info.block_length is not None:
            finished = FinishedBlocks(self.info, self.params.cache != "none")
        # Only a tail has a context to reuse; a response written from its start has none.
        caching.begin(canvas[: start if start > prompt_length else 0])
        blocks = list(self._blocks(canvas, start, stop))
        for index, (span, masks) in enumerate(blocks):
            num_steps = None if steps is None else max(1, share(steps, index, len(blocks)))
            schedule = self._schedule(len(masks), num_steps)
            filling = Filling(
                self,
                canvas,
                written,
                masks,
                span,
                prompt_length,
                stop,
                schedule,
                caching,
                finished,
                until_end,
            )
            step = yield from filling.plan(step)
            caching.end_block()
            here = canvas[: min(span[1], stop)]
            if until_end and (end := self.end_of(here, prompt_length)) is not None:
                return canvas[:end]
        return canvas[:stop]

    def end_of(self, text: Ids, prompt_length: int) -> int | None:
        """Return the number of tokens of a text, int64 [N], up to and with the response's first end
        token; None without one, or where a mask stands before it.
        """
        is_end = self.special.is_end(text[prompt_length:])
        found = np.flatnonzero(is_end | (text[prompt_length:] == self.mask_id))
        if len(found) == 0 or not is_end[found[0]]:
            return None
        return prompt_length + int(found[0]) + 1

    def candidates(self, noise: Noise, confidence: Confidence = "probability") -> Candidates:
        """Return the readout that picks one token per position with this request's settings. Raises
        InputError for a model without a mask token.
        """
        params = self.params
        drawing = (params.temperature, params.top_p, params.top_k, noise)
        forbidden, is_tempered, unranked, allowed, biases = self._told
        told = (confidence, forbidden, is_tempered, unranked)
        return Candidates(*drawing, *told, allowed, biases)

    @cached_property
    def _told(self) -> tuple[tuple[int, ...], bool, tuple[int, ...], tuple[int, ...], Biases]:
        """The fields of Candidates from `forbidden` on, which all steps share."""
        params = self.params
        forbidden = (self.mask_id, *params.forbidden_token_ids, *self._unwritten_end)
        is_tempered = params.tempered_confidence
        if is_tempered is None:
            kind = self.info.tempered_confidence
            is_tempered = params.temperature > 0 if kind == "drawn" else kind
        biases = as_pairs(params.logit_bias)
        return forbidden, is_tempered, self._unranked, tuple(params.allowed_token_ids), biases

    def ask(
        self,
        canvas: Ids,
        positions: Ids,
        readout: Readout,
        prompt_length: int,
        cache: CacheHint | None = None,
        settled: int | None = None,
        logprobs: LogProbs | None = None,
        written: LogProbs | None = None,
        stop: int | None = None,
        is_complete: bool = False,
    ) -> Read:
        """Return a Read of a copy of the canvas, with this request's guidance. settled, logprobs,
        written, stop: see Canvas; is_complete: see Read. Raises PlanError for positions outside the
        canvas.
        """
        guidance = None
        if scale := self.params.cfg_scale:
            unconditional = canvas.copy()
            unconditional[:prompt_length] = self.mask_id
            guidance = Guidance(unconditional, scale)
        shown = Canvas(
            self.sample, prompt_length, self.is_settled, settled, logprobs, written, stop
        )
        return Read(
            canvas.copy(),
            positions,
            readout,
            guidance=guidance,
            canvas=shown,
            cache=cache,
            is_complete=is_complete,
        )

    def _to_border(self, canvas: Ids) -> Ids:
        """Return a copy of the canvas, int64 [N]; where the last block is written so, with masks up
        to its border.
        """
        num_more = 0
        if self.info.block_length is not None and self.info.last_block == "masks":
            num_more = border_of(len(canvas), self.info) - len(canvas)
        return np.concatenate([canvas, self.masks(num_more)]) if num_more else canvas.copy()

    def _blocks(self, canvas: Ids, start: int, stop: int) -> Iterator[tuple[tuple[int, int], Ids]]:
        """Yield the span of each block that has a mask in [start, stop), with the positions of all
        its masks from `start` on.
        """
        grid = BlockGrid(self.block_length, start if self.info.block_origin == "response" else 0)
        for first, last in grid.spans(start, len(canvas)):
            masked = first + np.flatnonzero(canvas[first:last] == self.mask_id)
            if len(masked) and masked[0] < stop:
                yield (grid.start_of(first), last), masked

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
