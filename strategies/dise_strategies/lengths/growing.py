"""A canvas whose length changes while it is written, as DAEDAL and rho-EOS do it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dise_core import Candidates, Canvas, Denoiser, Ids, InputError, Mask, Plan, Read, Reading
from dise_core.history import Writing
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.writing.generation import Generation, LengthStep
from dise_strategies.lengths.probing import end_of


@dataclass(slots=True)
class GrowingCanvas:
    """The text, of max_length tokens at most. trace: its lengths, and why."""

    denoiser: Denoiser
    prompt_length: int
    max_length: int
    writing: Writing
    trace: list[LengthStep] = field(default_factory=list)

    @classmethod
    def of(cls, prompt: Ids, denoiser: Denoiser, longest: int) -> GrowingCanvas:
        """Return max_tokens masks. Raises InputError for more than `longest`."""
        if denoiser.max_tokens > longest:
            raise InputError(
                f"max_tokens={denoiser.max_tokens}, the length to start from, is above "
                f"max_gen_length={longest}",
                "max_tokens",
            )
        end_of(denoiser)
        ids = np.concatenate([prompt, denoiser.masks(denoiser.max_tokens)])
        limit = min(denoiser.max_length, len(prompt) + longest)
        return cls(denoiser.once(), len(prompt), limit, Writing.of(ids))

    @property
    def ids(self) -> Ids:
        return self.writing.ids

    @property
    def room(self) -> int:
        return self.max_length - len(self.ids)

    def insert(self, position: int, ids: Ids) -> None:
        """Insert ids before `position`, and cut the text off at max_length."""
        longer = self.writing.inserted(position, ids)
        self.writing = longer.at(np.arange(min(len(longer.ids), self.max_length)))

    def cut(self, count: int) -> None:
        """Remove the masks among the last `count` tokens that no other token follows."""
        unmasked = np.flatnonzero(self.ids != self.denoiser.mask_id)
        length = max(len(self.ids) - count, int(unmasked[-1]) + 1)
        self.writing = self.writing.at(np.arange(length))

    def note(self, confidence: float, nfe: int) -> None:
        length = len(self.ids) - self.prompt_length
        self.trace.append(LengthStep(len(self.trace) + 1, length, confidence, nfe))

    def likeliest(self) -> Read:
        """Return the Read of the likeliest tokens of the response, masks included."""
        response = np.arange(self.prompt_length, len(self.ids))
        return self.denoiser.ask(self.ids, response, Candidates(), self.prompt_length)

    def fill(self, step: int, masked: Ids, threshold: float) -> Plan[tuple[Reading, Mask, Reading]]:
        """Return a plan of a denoising step at masks, int64 [M], that commits each
        candidate with a probability above the threshold, or else the most probable one:
        the candidates, which of them were committed, bool [M], and what is likeliest at
        each response position.
        """
        denoiser = self.denoiser
        readout = denoiser.candidates(denoiser.noise.at_step(step))
        logprobs = self.writing.logprobs[self.prompt_length :].copy()
        canvas = Canvas(denoiser.sample, self.prompt_length, denoiser.is_settled, written=logprobs)
        read = denoiser.ask(self.ids, masked, readout, self.prompt_length, shown=canvas)
        reads = [read, *denoiser.recording(read)]
        candidates, *recorded, likeliest = yield [*reads, self.likeliest()]
        denoiser.note(self.writing, read, recorded)
        is_filled: Mask = candidates.confidences > threshold
        if not is_filled.any():
            is_filled[np.argmax(candidates.confidences)] = True
        ids, logprobs = candidates.token_ids[is_filled], candidates.logprobs[is_filled]
        self.writing.commit(step, masked[is_filled], ids, logprobs)
        return candidates, is_filled, likeliest

    def end_confidence(self, likeliest: Reading, count: int) -> float:
        """Return the end token's mean probability where it is likeliest, at the last `count`."""
        is_end = likeliest.token_ids == self.denoiser.special.eos_id
        logprobs = likeliest.logprobs[is_end][-count:]
        return float(np.exp(logprobs, dtype=np.float64).sum() / count)

    def finish(self, scorer: SequenceScorer, stopped_by: str) -> Plan[Generation]:
        """Return a plan of the response so far. stopped_by: unless at max_length."""
        text = self.denoiser.text(self.ids, self.prompt_length)
        text = replace(text, writing=self.writing)
        if not self.room:
            is_full = self.max_length == self.denoiser.max_length
            stopped_by = "context" if is_full else "max_gen_length"
        return Generation(text, (yield from scorer.evaluate(text)), tuple(self.trace), stopped_by)
