"""Fills one block of a response: its denoising steps, and what each commits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dise_core.arrays import Ids
from dise_core.constraints.block import ValidBlock
from dise_core.errors import PlanError
from dise_core.history import Writing
from dise_core.noise import Noise
from dise_core.plans.plan import Plan
from dise_core.plans.reading import Canvas, Read, Reading
from dise_core.plans.readouts import Readout, TokenLogProbs
from dise_core.scoring.contract import call
from dise_core.writing.contract import chosen, edited
from dise_core.writing.policy import Drafts, RenoisingPolicy, UnmaskingStep
from dise_core.writing.sampler import Sampler
from dise_core.writing.schedule import Commit, Schedule


@dataclass(slots=True, eq=False)
class Draft:
    """A text whose response is being written, block by block. stop: where the response
    ends. step: the next one. until_end: whether the block with the answer's end is last.
    """

    sampler: Sampler
    writing: Writing
    prompt_length: int
    stop: int
    step: int
    until_end: bool
    last_valid: Ids | None = None
    """Under a constraint the last valid text, int64 [N]; OPEN where none is known."""

    @property
    def ids(self) -> Ids:
        return self.writing.ids

    def fill(self, span: tuple[int, int], masks: Ids, num_steps: int | None) -> Plan[bool]:
        """Return a plan that fills a block's masks in so many steps, None for the sampler's
        rate; whether the answer has ended.
        """
        valid = self._valid(span)
        if valid is not None:  # what will be cut is no part of the answer
            masks = masks[masks < self.stop]
        schedule = self.sampler.schedule(len(masks), num_steps)
        self.step = yield from Filling(self, span, masks, schedule, valid).plan(self.step)
        response = self.ids[: min(span[1], self.stop)]
        end = self.sampler.end_of(response, self.prompt_length) if self.until_end else None
        if end is not None:
            self.stop = end
        return end is not None

    def _valid(self, span: tuple[int, int]) -> ValidBlock | None:
        constraint, last_valid = self.sampler.constraint, self.last_valid
        if constraint is None or last_valid is None:
            return None
        start, stop = max(span[0], self.prompt_length), min(span[1], self.stop)
        state = constraint.tokens.after(self.ids[self.prompt_length : start])
        final = constraint.final(self.ids[stop : self.stop], last_valid[stop : self.stop])
        return ValidBlock(
            constraint, start, self.ids[start:stop], last_valid[start:stop], state, final
        )


@dataclass(slots=True, eq=False)
class Filling:
    """One block of a text that is filled in place. span: its half-open range, which may
    begin in the prompt. masks: int64 [M], the positions of its masks. valid: how it is
    filled under a constraint. Under block-causal attention the text that is read ends
    with the block.
    """

    text: Draft
    span: tuple[int, int]
    masks: Ids
    schedule: Schedule
    valid: ValidBlock | None = None

    @property
    def sampler(self) -> Sampler:
        return self.text.sampler

    def plan(self, step: int) -> Plan[int]:
        """Return a plan that fills the masks, counting from `step`, of the next step."""
        policy, is_first, num_idle = self.sampler.policy, True, 0
        if isinstance(policy, RenoisingPolicy):
            return (yield from self._renoise(policy, step))
        while len(masked := self._find_masks()) and not self._is_left():
            commit = self.schedule.next(len(masked))
            # A step of Dream's schedule that would commit nothing needs no forward pass.
            if commit.quota == 0 and policy.uses_quota:
                continue
            is_changed = yield from self._step(step, masked, commit, is_first)
            step, is_first = step + 1, False
            num_idle = 0 if is_changed else num_idle + 1
            if num_idle == 100 or (num_idle and policy.uses_quota):
                raise PlanError(
                    f"unmasking policy {policy!r} chose no token, so denoising would never end"
                )
        for _ in range(policy.num_post_steps if policy.edits else 0):
            is_changed = yield from self._step(step, masked, Commit(0, 1.0), is_first=False)
            step += 1
            if not is_changed:
                break
        return step

    def _renoise(self, policy: RenoisingPolicy, step: int) -> Plan[int]:
        """Return a plan of steps that each choose anew what stands, and hide the rest."""
        sampler, likeliest, num_stable = self.sampler, Reading.empty(), 0
        for index in range(policy.num_steps):
            noise, before = sampler.noise.at_step(step), likeliest.token_ids
            temperature = call("unmasking policy", policy, policy.temperature, index)
            drawing = sampler.candidates(noise, policy.confidence)
            drawing = replace(drawing, temperature=temperature, is_tempered=True)
            readouts = drawing, replace(drawing, temperature=0.0)
            is_first = index == 0
            drawn, likeliest = yield from self._read(self.masks, readouts, is_first, False, noise)
            is_same = np.array_equal(likeliest.token_ids, before)
            num_stable = num_stable + 1 if is_same else 0
            state = UnmaskingStep(
                positions=self.masks,
                confidences=drawn.confidences,
                quota=len(self.masks),
                share=1.0,
                noise=noise,
                block_start=self.span[0],
                num_stable=num_stable,
            )
            self.text.ids[self.masks] = sampler.mask_id
            self._unmask(step, state, drawn)
            step += 1
            if call("unmasking policy", policy, policy.is_finished, state):
                break
        # No pass has read these: the step's input was what the one before it let stand.
        self.text.writing.commit(step - 1, self.masks, likeliest.token_ids, likeliest.logprobs)
        return step

    def _step(self, step: int, masked: Ids, commit: Commit, is_first: bool) -> Plan[bool]:
        """Return a plan of a step over masked positions; whether the text changed."""
        sampler, positions = self.sampler, masked
        noise = sampler.noise.at_step(step)
        if sampler.policy.edits:
            positions = self.masks
        readouts, is_whole = [self._readout(noise)], not len(masked)
        [reading] = yield from self._read(positions, readouts, is_first, is_whole)
        if self.valid is not None:
            reading = self.valid.chosen(reading, noise)
        candidates = reading
        if sampler.policy.edits:
            is_masked = np.isin(positions, masked, assume_unique=True)
            candidates = reading.at(is_masked)
        state = UnmaskingStep(
            positions=masked,
            confidences=candidates.confidences,
            quota=commit.quota,
            share=commit.share,
            noise=noise,
            block_start=self.span[0],
        )
        # One pass serves both choices of an editing policy: what fills a mask, and what replaces a
        # token. Both see the text as it stood before the step, and their places never meet, so it
        # does not matter that the masks are written first.
        if not sampler.policy.edits:
            return self._unmask(step, state, candidates)
        replacements, places = reading.at(~is_masked), positions[~is_masked]
        ids, confidences = replacements.token_ids, replacements.confidences
        drafts = Drafts(places, self.text.ids[places], ids, confidences)
        state = replace(state, drafts=drafts)
        is_unmasked = self._unmask(step, state, candidates)
        return self._edit(step, state, drafts, replacements) or is_unmasked

    def _unmask(self, step: int, state: UnmaskingStep, candidates: Reading) -> bool:
        """Write the policy's choice of candidates for masks; return whether any."""
        policy = self.sampler.policy
        if not len(state.positions):
            return False
        indices = chosen(policy, state)
        places, tokens = state.positions[indices], candidates.token_ids[indices]
        self.text.writing.commit(step, places, tokens, candidates.logprobs[indices])
        return len(indices) > 0

    def _edit(self, step: int, state: UnmaskingStep, drafts: Drafts, replacements: Reading) -> bool:
        """Write the policy's choice for other tokens; return whether any differs."""
        policy = self.sampler.policy
        indices = edited(policy, state, drafts)
        is_other = indices[drafts.candidates[indices] != drafts.token_ids[indices]]
        places, tokens = drafts.positions[is_other], drafts.candidates[is_other]
        self.text.writing.commit(step, places, tokens, replacements.logprobs[is_other])
        return len(is_other) > 0

    def _read(
        self,
        positions: Ids,
        readouts: Sequence[Readout],
        is_first: bool,
        is_whole: bool,
        draws: Noise | None = None,
    ) -> Plan[Sequence[Reading]]:
        """Return a plan of a step's answers to the readouts; under block-causal attention
        the pass tells unknown log-probabilities of final tokens too: of the blocks
        before, of this one if it is whole. draws: see `Sampler.ask`.
        """
        sampler, memory, span = self.sampler, self.sampler.memory, self.span
        text = self.text.ids[: span[1]] if sampler.is_block_causal else self.text.ids
        read = sampler.ask(
            text,
            positions,
            readouts[0],
            self.text.prompt_length,
            shown=self._canvas(text),
            cache=memory.hint(text, self.masks, is_first),
            is_complete=sampler.info.last_block == "alone",
            draws=draws,
        )
        beside = [replace(read, readout=readout, canvas=None) for readout in readouts[1:]]
        recording = sampler.recording(read)
        of_final = self._reads_of_final(read, text, span[1] if is_whole else span[0])
        answers = yield [read, *beside, *recording, *of_final]
        readings, more = answers[: len(readouts)], answers[len(readouts) :]
        sampler.note(self.text.writing, read, more[: len(recording)])
        for final_read, answer in zip(of_final, more[len(recording) :], strict=True):
            memory.note(final_read, answer)
        memory.note(read, readings[0])
        return readings

    def _readout(self, noise: Noise) -> Readout:
        if self.valid is not None:
            return self.valid.readout()
        sampler = self.sampler
        return sampler.candidates(noise, sampler.policy.confidence)

    def _canvas(self, text: Ids) -> Canvas:
        start, stop = self.text.prompt_length, min(len(text), self.text.stop)
        sampler = self.sampler
        logprobs = sampler.memory.known(text[:stop])
        return Canvas(
            sampler.sample,
            start,
            sampler.is_settled,
            settled=self.span[0] if sampler.policy.edits else None,
            logprobs=None if logprobs is None else logprobs[start:],
            written=self.text.writing.logprobs[start:stop].copy(),
            stop=stop,
        )

    def _reads_of_final(self, read: Read, text: Ids, stop: int) -> list[Read]:
        """Return the Read, if any, of response tokens before `stop` with unknown logprobs."""
        logprobs = self.sampler.memory.known(read.token_ids)
        if logprobs is None or read.guidance is not None:
            return []
        window = read.cache and read.cache.window
        start = max(self.text.prompt_length, window[0] if window else 0)
        final = start + np.flatnonzero(np.isnan(logprobs[start:stop]))
        if not len(final):
            return []
        return [replace(read, positions=final, readout=TokenLogProbs(text[final]), canvas=None)]

    def _find_masks(self) -> Ids:
        masked: Ids = self.masks[self.text.ids[self.masks] == self.sampler.mask_id]
        return masked

    def _is_left(self) -> bool:
        """Whether to leave the block: the answer has ended, or no mask is left."""
        text, sampler, (start, end) = self.text, self.sampler, self.span
        if sampler.policy.edits:
            return False
        response = text.ids[: min(end, text.stop)]
        if text.stop < end and not (response[start:] == sampler.mask_id).any():
            return True
        return text.until_end and sampler.end_of(response, text.prompt_length) is not None
