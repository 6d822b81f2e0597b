"""How one block of a response is filled: its denoising steps, and what each of them commits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dise_core.arrays import Ids, LogProbs, Mask
from dise_core.cache import Caching
from dise_core.checks import checked_choice, checked_edits
from dise_core.errors import PlanError
from dise_core.finished import FinishedBlocks
from dise_core.interfaces import Drafts, UnmaskingStep
from dise_core.noise import Noise
from dise_core.reading import CacheHint, Candidates, Plan, Read, Reading, TokenLogProbs
from dise_core.schedule import Commit, Schedule

if TYPE_CHECKING:
    from dise_core.denoise import Denoiser

NONE = np.zeros(0, np.int64)

MAX_IDLE_STEPS = 100
"""Consecutive steps without a commit after which a policy without a quota fails: one that draws at
random may commit nothing now and then.
"""


@dataclass(slots=True)
class Filling:
    """One block that is filled in place: the positions of its masks, int64 [M], in the canvas,
    int64 [N].

    written: the log-probability that each token had when it was committed, float32 [N], NaN where
    that is not known; filled in place too. span: the block's half-open range, which may begin in
    the prompt. stop: where the response ends; what is written behind it will be cut. stops_at_end:
    whether to leave the block as soon as the answer has ended in it.
    finished: None unless attention is block-causal; then the text that is read ends with the block,
    and `caching` is not used.
    """

    denoiser: Denoiser
    canvas: Ids
    written: LogProbs
    masks: Ids
    span: tuple[int, int]
    prompt_length: int
    stop: int
    schedule: Schedule
    caching: Caching
    finished: FinishedBlocks | None = None
    stops_at_end: bool = False

    def plan(self, step: int) -> Plan[int]:
        """Return a plan that fills the masks, counting its steps from `step`, of the number of the
        next step.
        """
        policy, mask_id = self.denoiser.policy, self.denoiser.mask_id
        is_first, num_idle, num_after = True, 0, 0
        while not self._is_left():
            masked = self.masks[self.canvas[self.masks] == mask_id]
            commit = self.schedule.next(len(masked)) if len(masked) else Commit(0, 1.0)
            if len(masked) == 0:
                if num_after == policy.num_post_steps:
                    break
                num_after += 1
            # A step of Dream's schedule that would commit nothing needs no forward pass.
            elif commit.quota == 0 and policy.uses_quota:
                continue
            is_changed = yield from self._step(step, masked, commit, is_first)
            step, is_first = step + 1, False
            if len(masked) == 0 and not is_changed:
                break
            num_idle = 0 if is_changed else num_idle + 1
            if num_idle:
                self._check_idle(num_idle)
        return step

    def _step(self, step: int, masked: Ids, commit: Commit, is_first: bool) -> Plan[bool]:
        """Return a plan of one step over the masked positions, int64 [<= M], of whether it changed
        the canvas.
        """
        denoiser, canvas = self.denoiser, self.canvas
        noise = denoiser.noise.at_step(step)
        # Early exit judges all that is still masked, so a block's first step reads past it.
        looks_ahead = is_first and denoiser.params.early_exit is not None
        asked = self._rest() if looks_ahead else masked
        if denoiser.policy.edits:
            asked = self.masks
        reading = yield from self._read(asked, noise, is_first, is_whole=len(masked) == 0)
        if looks_ahead and self._is_over(reading):
            canvas[asked], self.written[asked] = reading.token_ids, reading.logprobs
            return True
        candidates, drafts = reading, None
        if asked is not masked:
            is_masked = np.isin(asked, masked, assume_unique=True)
            candidates = reading.at(is_masked)
            if denoiser.policy.edits:
                drafts = self._drafts(asked, ~is_masked, reading)
        look = UnmaskingStep(
            masked, candidates.confidences, commit.quota, commit.share, noise, self.span[0], drafts
        )
        return self._commit(look, candidates)

    def _commit(self, look: UnmaskingStep, candidates: Reading) -> bool:
        """Write the candidates that the policy chooses into the canvas, and return whether it chose
        any.
        """
        policy, chosen = self.denoiser.policy, NONE
        if len(look.positions):
            chosen = checked_choice(policy, policy.choose(look), len(look.positions))
            where = look.positions[chosen]
            self.canvas[where] = candidates.token_ids[chosen]
            self.written[where] = candidates.logprobs[chosen]
        if (drafts := look.drafts) is None:
            return len(chosen) > 0
        edited = checked_edits(policy, policy.edit(look), len(drafts.positions))
        self.canvas[drafts.positions[edited]] = drafts.candidates[edited]
        self.written[drafts.positions[edited]] = np.nan
        return len(chosen) > 0 or bool(
            (drafts.candidates[edited] != drafts.token_ids[edited]).any()
        )

    def _drafts(self, asked: Ids, are_drafts: Mask, reading: Reading) -> Drafts:
        """Return the committed positions of the block, with what was read there."""
        positions, read = asked[are_drafts], reading.at(are_drafts)
        return Drafts(positions, self.canvas[positions], read.token_ids, read.confidences)

    def _read(self, asked: Ids, noise: Noise, is_first: bool, *, is_whole: bool) -> Plan[Reading]:
        """Return a plan of the candidates at the positions asked.

        Under block-causal attention the same pass also tells the log-probabilities of the tokens
        that are final, if they are not yet known: those of the blocks before, and those of this one
        if it is whole.
        """
        finished, drawn = (
            self.finished,
            self.denoiser.candidates(noise, self.denoiser.policy.confidence),
        )
        if finished is None:
            hint = self.caching.hint(self.masks, len(self.canvas), is_first)
            [reading] = yield [self._ask(self.canvas, asked, drawn, hint)]
            return reading
        text = self.canvas[: self.span[1]]
        if self.denoiser.params.cfg_scale:  # a guided pass runs whole, and tells nothing unguided
            [reading] = yield [self._ask(text, asked, drawn)]
            return reading
        final = self._unknown(text, self.span[1] if is_whole else self.span[0])
        hint = finished.hint(text, max(self.caching.most, len(self.canvas)))
        read = self._ask(text, asked, drawn, hint)
        if len(final) == 0:
            [reading] = yield [read]
            return reading
        own = replace(read, positions=final, readout=TokenLogProbs(text[final]), canvas=None)
        reading, known = yield [read, own]
        finished.note(own, known)
        return reading

    def _ask(self, text: Ids, asked: Ids, drawn: Candidates, hint: CacheHint | None = None) -> Read:
        """Return the Read of a step; a stream sees of it what is part of the response."""
        start, stop, known = self.prompt_length, min(len(text), self.stop), None
        settled = self.span[0] if self.denoiser.policy.edits else None
        if self.finished is not None:
            known = self.finished.logprobs(text[:stop])[start:]
        return self.denoiser.ask(
            text,
            asked,
            drawn,
            start,
            cache=hint,
            settled=settled,
            logprobs=known,
            written=self.written[start:stop].copy(),
            stop=stop,
            is_complete=self.denoiser.info.last_block == "alone",
        )

    def _unknown(self, text: Ids, stop: int) -> Ids:
        """Return the response's positions before `stop` that the next pass computes and whose
        log-probabilities are not known, int64 [K].
        """
        assert self.finished is not None
        start = max(self.prompt_length, self.finished.first_computed(text))
        return start + np.flatnonzero(np.isnan(self.finished.logprobs(text)[start:stop]))

    def _is_left(self) -> bool:
        """Return whether to leave the block before it is full: what is committed stays, and no mask
        is left where the answer has ended in it, or in front of `stop`.
        """
        if self.denoiser.policy.edits:
            return False
        here = self.canvas[: min(self.span[1], self.stop)]
        if self.stop < self.span[1] and not (here[self.span[0] :] == self.denoiser.mask_id).any():
            return True
        return self.stops_at_end and self.denoiser.end_of(here, self.prompt_length) is not None

    def _check_idle(self, num_steps: int) -> None:
        """Raise PlanError if num_steps >= 1 steps in a row without a commit are too many."""
        policy = self.denoiser.policy
        if num_steps == MAX_IDLE_STEPS or policy.uses_quota:
            raise PlanError(
                f"unmasking policy {policy!r} chose no token, so denoising would never end"
            )

    def _rest(self) -> Ids:
        """Return all masked positions from the block's first one to the end of the canvas."""
        first = self.masks[0]
        masked: Ids = first + np.flatnonzero(self.canvas[first:] == self.denoiser.mask_id)
        return masked

    def _is_over(self, reading: Reading) -> bool:
        """Return whether all candidates are end tokens, each more probable than early_exit."""
        sure = np.exp(reading.logprobs.min()) > (self.denoiser.params.early_exit or 0.0)
        return bool(sure and self.denoiser.special.is_end(reading.token_ids).all())
