"""Semi-autoregressive denoising as a plan: block by block, each in the policy's order."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dise_core.arrays import Ids
from dise_core.blocks import BlockGrid
from dise_core.constraints.constrained import OPEN
from dise_core.history import Writing
from dise_core.models.completion import border_of
from dise_core.plans.plan import Plan
from dise_core.sequence import TokenSequence
from dise_core.writing.filling import Draft
from dise_core.writing.sampler import Sampler
from dise_core.writing.schedule import share


@dataclass(frozen=True)
class Denoiser(Sampler):
    """Writes one response by filling its masks, with the settings of one request."""

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

    def once(self) -> Self:
        """Return the denoiser of a response that only a reviser may change."""
        return replace(self, is_settled=not self.is_revised)

    def text(self, ids: Ids, prompt_length: int) -> TokenSequence:
        """Return ids [N], the suffix included, as a text. May raise InputError."""
        return TokenSequence(
            ids,
            prompt_length,
            self.special,
            self.block_length,
            self.max_length,
            self.info.block_origin,
            suffix_length=len(self.suffix),
            rule=self.constraint,
            spell=self.spell,
            canvas_length=self.info.canvas_length,
        )

    def masks(self, count: int) -> Ids:
        """Return mask ids, int64 [count]. Raises InputError without a mask token."""
        return np.full(count, self.mask_id)

    def write(
        self, prompt: Ids, num_tokens: int, *, until_end: bool = False
    ) -> Plan[TokenSequence]:
        """Return a plan of the text with num_tokens written; see `denoise`."""
        ids = np.concatenate([prompt, self.masks(num_tokens), self.suffix])
        canvas, steps = self.text(ids, len(prompt)), self.params.steps
        return (yield from self.denoise(canvas, len(prompt), steps=steps, until_end=until_end))

    def rewrite(
        self, text: TokenSequence, positions: Ids, first_step: int = 0
    ) -> Plan[TokenSequence]:
        """Return a plan of a finished text whose response tokens at the positions, int64
        [M], are written again, one a step in the policy's order: over the whole response,
        or under block-causal attention block by block, each against the finished ones
        before it, and cut behind the new first end token if nothing follows one. The
        others: see `denoise`.
        """
        length = max(len(text.response), 1)
        update = {"block_length": length, "tokens_per_step": 1, "steps": None}
        writer = replace(
            self,
            params=self.params.model_copy(update=update),
            policy=self.policy.model_copy(update={"eps": None}),
            info=replace(self.info, last_block="ends"),
        )
        start, end = text.prompt_length, self.end_of(text.ids, text.prompt_length)
        is_cut = self.info.block_length is not None and (end is None or end == len(text))
        canvas = replace(text, ids=text.with_masks(positions))
        return (
            yield from writer.denoise(
                canvas, start, first_step=first_step, until_end=is_cut, last_valid=text.ids
            )
        )

    def denoise(
        self,
        canvas: TokenSequence,
        start: int,
        *,
        first_step: int = 0,
        steps: int | None = None,
        until_end: bool = False,
        last_valid: Ids | None = None,
    ) -> Plan[TokenSequence]:
        """Return a plan of a text [N] with every mask from `start` on filled. Tokens that
        it keeps stay as the canvas's own Writing has them.

        until_end: stop at the first block that holds an end token, and cut the text
        behind its first one. Under block-causal attention each block is written as if the
        text ended with it, the last one as ModelInfo.last_block says, and so is each
        canvas. Other blocks count from `start`. `steps` are spread over the blocks that hold a
        mask; None commits `rate` tokens per step. Steps count from `first_step` and key
        the sampling noise, so another pass over the same response must start at one not
        yet used. last_valid: a text, int64 [N], that meets the constraint where there is
        one, and keeps what the canvas keeps.

        Raises PlanError for a policy that commits nothing for too long.
        """
        prompt_length, stop = canvas.prompt_length, canvas.response_end
        writing = self._to_border(canvas)
        ids = writing.ids
        # Only a tail has a context to reuse; a response written from its start has none.
        context = ids[: start if start > prompt_length else 0]
        self.memory.begin(context, max(min(self.most, self.max_length), len(ids)))
        draft = Draft(self, writing, prompt_length, stop, first_step, until_end)
        if self.constraint is not None:
            draft.last_valid = np.full(len(ids), OPEN)
            draft.last_valid[:stop] = OPEN if last_valid is None else last_valid[:stop]
        grid = self.info.blocks(prompt_length) or BlockGrid(self.block_length, start)
        blocks = list(self._blocks(ids, grid, start, stop))
        for index, (span, masks) in enumerate(blocks):
            num_steps = None if steps is None else max(1, share(steps, index, len(blocks)))
            if (yield from draft.fill(span, masks, num_steps)):
                break
        text = replace(canvas, ids=draft.ids.copy(), writing=draft.writing)
        if self.constraint is not None:
            response = slice(prompt_length, draft.stop)
            is_forced = self.constraint.is_forced(draft.ids[response])
            draft.writing.force(response, is_forced)
        # A response that something follows keeps its length.
        num_kept = draft.stop + canvas.suffix_length
        return text if num_kept == len(text) else text.at(np.arange(num_kept))

    def _to_border(self, canvas: TokenSequence) -> Writing:
        ids, num_more = canvas.ids, 0
        if self.info.block_length is not None and self.info.last_block == "masks":
            num_more = border_of(len(ids), self.info, canvas.prompt_length) - len(ids)
        ids = np.concatenate([ids, self.masks(num_more)]) if num_more else ids
        return Writing.of(ids) if canvas.writing is None else canvas.writing.onto(ids)

    def _blocks(
        self, canvas: Ids, grid: BlockGrid, start: int, stop: int
    ) -> Iterator[tuple[tuple[int, int], Ids]]:
        """Yield the span and masks of each block with a mask in [start, stop)."""
        for first, end in grid.spans(start, len(canvas)):
            masked = first + np.flatnonzero(canvas[first:end] == self.mask_id)
            if len(masked) and masked[0] < stop:
                yield (grid.start_of(first), end), masked
