"""DAEDAL: finds a length before denoising, and inserts masks where the model is unsure. Source: Li
et al., 2025.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import Field

from dise_core import Candidates, InputError, LengthController, Plan, Read, Reading
from dise_core.arrays import Ids, Mask
from dise_core.history import Writing
from dise_core.params.base import Length
from dise_core.plans.reading import Canvas
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.writing.denoise import Denoiser
from dise_core.writing.generation import Generation, LengthStep


@dataclass(slots=True)
class _Canvas:
    """The text being written. trace: its lengths, and the confidence in the end tokens at each."""

    writing: Writing
    prompt_length: int
    max_length: int
    trace: list[LengthStep] = field(default_factory=list)

    @property
    def ids(self) -> Ids:
        return self.writing.ids

    @property
    def room(self) -> int:
        return self.max_length - len(self.ids)

    def insert(self, position: int, ids: Ids) -> None:
        """Insert ids before the token at `position`; the text is then cut off at max_length."""
        longer = self.writing.inserted(position, ids)
        self.writing = longer.at(np.arange(min(len(longer.ids), self.max_length)))

    def shown(self, denoiser: Denoiser) -> Canvas:
        start = self.prompt_length
        written = self.writing.logprobs[start:].copy()
        return Canvas(denoiser.sample, start, denoiser.is_settled, written=written)

    def note(self, confidence: float, nfe: int) -> None:
        self.trace.append(
            LengthStep(len(self.trace) + 1, len(self.ids) - self.prompt_length, confidence, nfe)
        )


class DAEDAL(LengthController):
    """Starts at max_tokens and grows to at most max_gen_length while the model is unsure.

    The settings are those of the published code. First the canvas of masks grows by
    `expansion_factor` tokens at a time until the model is sure enough that the response ends in it.
    Then eos_check_tokens // 2 end tokens are appended, and the canvas is denoised block by block:
    each step commits every candidate with a probability above `high_conf_threshold`, or else the
    most probable one. If in a step the model is not sure of the end, its least probable candidate
    below `low_conf_threshold` gives way to `expansion_factor` masks. The request's schedule and
    unmasking policy are not used. In the trace `score` is the confidence in the end tokens, 0 to 1.
    On a block-causal model that confidence is read from blocks behind masks, which such a model
    never saw in training, and a text that ends inside a block goes on with end tokens, as those
    that DAEDAL appends; until-end finds the length by writing.
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

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        """Raises InputError if max_tokens is above max_gen_length, or if the model has no end
        token.
        """
        if denoiser.max_tokens > self.max_gen_length:
            raise InputError(
                f"max_tokens={denoiser.max_tokens}, the length to start from, is above "
                f"max_gen_length={self.max_gen_length}",
                "max_tokens",
            )
        if denoiser.special.eos_id is None:
            raise InputError(
                "this model has no end token, so its length cannot be found this way; use 'fixed'",
                "length",
            )
        denoiser = denoiser.once()
        ids = np.concatenate([prompt, denoiser.masks(denoiser.max_tokens)])
        limit = min(denoiser.max_length, len(prompt) + self.max_gen_length)
        canvas = _Canvas(Writing.of(ids), len(prompt), limit)
        yield from self._find_length(canvas, denoiser)
        canvas.insert(len(canvas.ids), np.full(self.eos_check_tokens // 2, denoiser.special.eos_id))
        yield from self._fill(canvas, denoiser)
        text = replace(denoiser.text(canvas.ids, len(prompt)), writing=canvas.writing)
        evaluation = yield from scorer.evaluate(text)
        limit_name = "context" if limit == denoiser.max_length else "max_gen_length"
        stopped_by = "eos_confidence" if canvas.room else limit_name
        return Generation(text, evaluation, tuple(canvas.trace), stopped_by)

    def _find_length(self, canvas: _Canvas, denoiser: Denoiser) -> Plan[None]:
        while True:
            [reading] = yield [_likeliest(canvas, denoiser)]
            confidence = self._end_confidence(reading, denoiser)
            canvas.note(confidence, 1)
            if confidence >= self.eos_confidence_threshold or not canvas.room:
                return
            canvas.insert(len(canvas.ids), denoiser.masks(self.expansion_factor))

    def _fill(self, canvas: _Canvas, denoiser: Denoiser) -> Plan[None]:
        start, step, nfe = canvas.prompt_length, 0, 0
        grid = denoiser.text(canvas.ids, start).blocks
        while start < len(canvas.ids):
            # Inserted masks push the tail on, so the block is cut from the grid anew at each step.
            block = np.arange(*next(grid.spans(start, len(canvas.ids))))
            masked = block[canvas.ids[block] == denoiser.mask_id]
            if len(masked) == 0:
                start = int(block[-1]) + 1
                continue
            readout = denoiser.candidates(denoiser.noise.at_step(step))
            shown = canvas.shown(denoiser)
            read = denoiser.ask(canvas.ids, masked, readout, canvas.prompt_length, shown=shown)
            reads = [read, *denoiser.recording(read)]
            *answers, likeliest = yield [*reads, _likeliest(canvas, denoiser)]
            denoiser.note(canvas.writing, step, read, answers)
            candidates = answers[0]
            confidence = self._end_confidence(likeliest, denoiser)
            is_filled = self._is_filled(candidates)
            tokens, logprobs = candidates.token_ids[is_filled], candidates.logprobs[is_filled]
            canvas.writing.commit(step, masked[is_filled], tokens, logprobs)
            step, nfe = step + 1, nfe + 1
            unsure = np.flatnonzero(~is_filled & (candidates.confidences < self.low_conf_threshold))
            if len(unsure) and confidence < self.expand_eos_confidence_threshold and canvas.room:
                least = unsure[np.argmin(candidates.confidences[unsure])]
                canvas.insert(int(masked[least]), denoiser.masks(self.expansion_factor - 1))
                canvas.note(confidence, nfe)
                nfe = 0

    def _is_filled(self, candidates: Reading) -> Mask:
        is_sure: Mask = candidates.confidences > self.high_conf_threshold
        if not is_sure.any():
            is_sure[np.argmax(candidates.confidences)] = True
        return is_sure

    def _end_confidence(self, reading: Reading, denoiser: Denoiser) -> float:
        """The mean probability of the end token over the last eos_check_tokens positions where it
        is the likeliest token; missing ones count as 0.
        """
        is_end = reading.token_ids == denoiser.special.eos_id
        last = reading.logprobs[is_end][-self.eos_check_tokens :]
        return float(np.exp(last, dtype=np.float64).sum() / self.eos_check_tokens)


def _likeliest(canvas: _Canvas, denoiser: Denoiser) -> Read:
    """Return the Read of the likeliest token, which may be the mask, at each response position."""
    response = np.arange(canvas.prompt_length, len(canvas.ids))
    return denoiser.ask(canvas.ids, response, Candidates(), canvas.prompt_length)
