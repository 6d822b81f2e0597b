"""DAEDAL finds a length, then inserts masks at doubts. Source: Li et al., 2025."""

import numpy as np
from pydantic import Field

from dise_core import Denoiser, Generation, Ids, LengthController, Plan, SequenceScorer
from dise_core.params.base import Length
from dise_strategies.lengths.growing import GrowingCanvas


class DAEDAL(LengthController):
    """Starts at max_tokens and grows to at most max_gen_length while the model is unsure.

    The settings are those of the published code. First the canvas of masks grows by
    `expansion_factor` tokens at a time until the model is sure enough that the response
    ends in it. Then eos_check_tokens // 2 end tokens are appended, and the canvas is
    denoised block by block: each step commits every candidate with a probability above
    `high_conf_threshold`, or else the most probable one. Unless the model is sure of the
    end, its least probable candidate below `low_conf_threshold` gives way to
    `expansion_factor` masks. The request's schedule and unmasking policy are not used. In
    the trace `score` is the confidence in the end tokens, 0 to 1. A block-causal model
    never saw blocks behind masks in training; there until-end suits.
    """

    max_gen_length: Length = 2048
    """The longest response that it grows to."""
    high_conf_threshold: float = Field(default=0.9, ge=0, le=1)
    """Candidates more probable than this are committed."""
    low_conf_threshold: float = Field(default=0.1, ge=0, le=1)
    """A candidate less probable than this may give way to masks."""
    expansion_factor: Length = 8
    """Tokens by which the canvas grows at a time."""
    eos_confidence_threshold: float = Field(default=0.5, ge=0, le=1)
    """Confidence in the end tokens at which the first growth stops."""
    expand_eos_confidence_threshold: float = Field(default=0.9, ge=0, le=1)
    """Confidence in the end tokens at which no masks are inserted any more."""
    eos_check_tokens: Length = 32
    """End tokens over which that confidence is averaged."""

    def longest(self, max_tokens: int) -> int:
        return max(max_tokens, self.max_gen_length)

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        """Raises InputError for max_tokens above the limit, or without end token."""
        canvas = GrowingCanvas.of(prompt, denoiser, self.max_gen_length)
        yield from self._find_length(canvas)
        canvas.insert(len(canvas.ids), np.full(self.eos_check_tokens // 2, denoiser.special.eos_id))
        yield from self._fill(canvas)
        return (yield from canvas.finish(scorer, "eos_confidence"))

    def _find_length(self, canvas: GrowingCanvas) -> Plan[None]:
        while True:
            [reading] = yield [canvas.likeliest()]
            confidence = canvas.end_confidence(reading, self.eos_check_tokens)
            canvas.note(confidence, 1)
            if confidence >= self.eos_confidence_threshold or not canvas.room:
                return
            canvas.insert(len(canvas.ids), canvas.denoiser.masks(self.expansion_factor))

    def _fill(self, canvas: GrowingCanvas) -> Plan[None]:
        denoiser, start, step, nfe = canvas.denoiser, canvas.prompt_length, 0, 0
        grid = denoiser.text(canvas.ids, start).blocks
        while start < len(canvas.ids):
            # Inserted masks push the tail on, so the block is cut from the grid anew at
            # each step.
            block = np.arange(*next(grid.spans(start, len(canvas.ids))))
            masked = block[canvas.ids[block] == denoiser.mask_id]
            if len(masked) == 0:
                start = int(block[-1]) + 1
                continue
            candidates, is_filled, likeliest = yield from canvas.fill(
                step, masked, self.high_conf_threshold
            )
            confidence = canvas.end_confidence(likeliest, self.eos_check_tokens)
            step, nfe = step + 1, nfe + 1
            unsure = np.flatnonzero(~is_filled & (candidates.confidences < self.low_conf_threshold))
            if len(unsure) and confidence < self.expand_eos_confidence_threshold and canvas.room:
                index = unsure[np.argmin(candidates.confidences[unsure])]
                canvas.insert(int(masked[index]), denoiser.masks(self.expansion_factor - 1))
                canvas.note(confidence, nfe)
                nfe = 0
