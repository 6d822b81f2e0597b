"""rho-EOS: the expected end tokens set the length. Source: rho-EOS, 2026."""

import math

import numpy as np
from pydantic import Field

from dise_core import Denoiser, Generation, Ids, LengthController, Plan, SequenceScorer
from dise_core.params.base import MAX_STEPS, Length
from dise_strategies.lengths.growing import GrowingCanvas
from dise_strategies.lengths.probing import refuse_blocks

SEGMENT = 0.1
"""The distance from the threshold at which a change of length takes the next factor c."""


class RhoEOS(LengthController):
    """Starts at max_tokens, and grows and shrinks while it writes, to at most
    max_gen_length.

    A step commits, in the first `window` tokens with masks, each candidate with a
    probability above `high_conf_threshold`, or else the most probable one. The same pass
    tells rho, the share of masks whose likeliest token is the end token: below `low`
    masks are appended, above `high` masks at the end are removed, step · c of them. With
    s the distance from the threshold in tenths, rounded up, c is 2^(s - 1), at most 8.
    The request's schedule, blocks and unmasking policy are not used. In the trace `score`
    is rho where the length changed. Refuses block-causal models.

    The authors' code differs in two places: where it shrinks it drops written tokens too,
    and once the canvas has max_gen_length tokens it never shrinks again.
    """

    low: float = Field(default=0.4, ge=0, le=1)
    """rho below which the canvas grows."""
    high: float = Field(default=0.6, ge=0, le=1)
    """rho above which it shrinks."""
    step: Length = 8
    """Tokens that the canvas grows or shrinks by, times c."""
    max_gen_length: Length = 2048
    """The longest response that it grows to."""
    until_step: int = Field(default=64, ge=0, le=MAX_STEPS)
    """The number of steps after which the length stays."""
    window: Length = 32
    """Tokens, counted from the start of the response, in which a step commits."""
    high_conf_threshold: float = Field(default=0.9, ge=0, le=1)
    """Candidates more probable than this are committed."""

    def longest(self, max_tokens: int) -> int:
        return max(max_tokens, self.max_gen_length)

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        """Raises InputError as DAEDAL does, and for a block-causal model."""
        refuse_blocks("rho-eos", denoiser)
        canvas = GrowingCanvas.of(prompt, denoiser, self.max_gen_length)
        step = nfe = 0
        while len(masks := np.flatnonzero(canvas.ids[len(prompt) :] == denoiser.mask_id)):
            first = masks[masks // self.window == masks[0] // self.window] + len(prompt)
            _, _, likeliest = yield from canvas.fill(step, first, self.high_conf_threshold)
            rho = float(np.mean(likeliest.token_ids[masks] == denoiser.special.eos_id))
            step, nfe, length = step + 1, nfe + 1, len(canvas.ids)
            if step <= self.until_step:
                self._resize(canvas, rho)
            if len(canvas.ids) != length:
                canvas.note(rho, nfe)
                nfe = 0
        return (yield from canvas.finish(scorer, "density"))

    def _resize(self, canvas: GrowingCanvas, rho: float) -> None:
        distance = max(self.low - rho, rho - self.high)
        if distance <= 0:
            return
        segment = math.ceil(distance / SEGMENT - 1e-9)
        count = self.step * min(2 ** (segment - 1), 8)
        if rho < self.low:
            masks = canvas.denoiser.masks(min(count, canvas.room))
            canvas.insert(len(canvas.ids), masks)
        else:
            canvas.cut(count)
