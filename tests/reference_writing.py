"""The writing of a response as a naive loop: the whole text again in each step, one token after the
other, and no cache. Only tests use it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dise_core import Noise, SamplingParams, UnmaskingPolicy, UnmaskingStep
from dise_core.models.info import ModelInfo
from dise_core.writing.policy import Drafts

Logits = Callable[[list[int]], np.ndarray]
"""The logits [N, V] of a whole text."""


class Guess(NamedTuple):
    """What a step would write at a position, and the distribution there."""

    token: int
    logprob: float
    confidence: float
    entropy: float
    margin: float


@dataclass
class NaiveWriting:
    """A text that is written in place."""

    logits: Logits
    info: ModelInfo
    params: SamplingParams
    policy: UnmaskingPolicy
    noise: Noise
    text: list[int]
    size: int
    logprobs: dict[int, float] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    commits: dict[int, Guess] = field(default_factory=dict)
    num_steps: int = 0

    def fill(self, start: int, step: int = 0, until_end: bool = False) -> int:
        """Fill the masks from `start` on; return the number of the next step."""
        mask, block = self.info.special.masking_id, self.info.block_length
        stop, length = len(self.text), block or self.params.block_length
        if block and self.info.last_block == "masks":
            self.text += [mask] * (-stop % block)
        first = start // length * length if block else start
        spans = [(at, min(at + length, len(self.text))) for at in
                 range(first, len(self.text), length)]  # fmt: skip
        for index, (begin, end) in enumerate(spans):
            own = [at for at in range(max(begin, start), end) if self.text[at] == mask]
            quotas, num_post = self._quotas(len(own), index, len(spans)), 0
            while self._is_open(own, stop, until_end):
                masked = [at for at in own if self.text[at] == mask]
                num_post += not masked
                if num_post > self.policy.num_post_steps:
                    break
                share = next(quotas) if masked else 1.0
                quota = int(len(masked) * share) if isinstance(share, float) else share
                quota = min(quota, len(masked))
                if masked and not quota and self.policy.uses_quota:
                    continue
                part = share if isinstance(share, float) else quota / len(masked)
                is_over = self._step(step, own, masked, quota, part, begin, end)
                step += 1
                if is_over and not masked:
                    break
            if until_end and (last := self._end(self.text[:end][:stop])) is not None:
                stop = last
                break
        self.text = self.text[:stop]
        return step

    def _is_open(self, own: list[int], stop: int, until_end: bool) -> bool:
        mask = self.info.special.masking_id
        if not own or own[0] >= stop:
            return False
        if self.policy.edits:
            return True
        is_ended = until_end and self._end(self.text[: own[-1] + 1][:stop]) is not None
        return not is_ended and any(self.text[at] == mask for at in own if at < stop)

    def _end(self, text: list[int]) -> int | None:
        for at in range(self.size, len(text)):
            if text[at] in self.info.special.eos_ids:
                return at + 1
            if text[at] == self.info.special.mask_id:
                return None
        return None

    def _quotas(self, count: int, index: int, num_blocks: int) -> Iterator[int | float]:
        steps, params = self.params.steps, self.params
        if steps is not None:
            steps = max(1, steps // num_blocks + (index < steps % num_blocks))
        rate = params.tokens_per_step
        if "tokens_per_step" not in params.model_fields_set:
            rate = self.policy.default_tokens_per_step or rate
        if (eps := self.policy.eps) is not None:
            times = np.linspace(1, eps, (steps or -(-count // rate)) + 1).tolist()
            yield from (1 - after / now for now, after in itertools.pairwise(times[:-1]))
            yield from itertools.repeat(1.0)
        if steps is not None:
            steps = min(steps, count)
            yield from (count // steps + (number < count % steps) for number in range(steps))
            yield from itertools.repeat(1)
        yield from itertools.repeat(rate)

    def _step(self, step: int, own: list[int], masked: list[int], quota: int, share: float,
              begin: int, end: int) -> bool:  # fmt: skip
        """Take a step; whether nothing changed."""
        places = own if self.policy.edits else masked
        text = self.text[:end] if self.info.block_length else self.text
        guesses = self._guesses(text, places, self.noise.at_step(step))
        self.num_steps = step + 1
        drafts = None
        if self.policy.edits:
            rest = [at for at in own if at not in masked]
            drafts = Drafts(*map(np.array, (
                rest, [self.text[at] for at in rest], [guesses[at].token for at in rest],
                [guesses[at].confidence for at in rest])))  # fmt: skip
        state = UnmaskingStep(
            np.array(masked), np.array([guesses[at].confidence for at in masked]), quota, share,
            self.noise.at_step(step), begin, drafts,
        )  # fmt: skip
        chosen = [masked[index] for index in self.policy.choose(state)] if masked else []
        if drafts is not None:
            edited = [rest[index] for index in self.policy.edit(state)]
            chosen += [at for at in edited if guesses[at].token != self.text[at]]
        return self._commit(step, {at: guesses[at] for at in chosen})

    def _commit(self, step: int, guesses: dict[int, Guess]) -> bool:
        for at, guess in guesses.items():
            self.text[at], self.logprobs[at], self.steps[at] = guess.token, guess.logprob, step
            self.commits[at] = guess
        return not guesses

    def _guesses(self, text: list[int], places: list[int], noise: Noise) -> dict[int, Guess]:
        mask, params = self.info.special.masking_id, self.params
        logits = np.array(self.logits(text), np.float64)
        if params.cfg_scale:
            bare = np.array(self.logits([mask] * self.size + text[self.size :]), np.float64)
            logits = bare + (params.cfg_scale + 1) * (logits - bare)
        is_tempered = self.info.tempered_confidence
        if is_tempered == "drawn":
            is_tempered = params.temperature > 0
        guesses = {}
        for at in places:
            row = logits[at]
            p, allowed = softmax(row), np.arange(len(row)) != mask
            drawn = np.zeros(len(row))
            drawn[allowed] = softmax(row[allowed] / (params.temperature or 1))
            token = int(drawn.argmax())
            if params.temperature:
                token = int((drawn.cumsum() > noise.uniforms(np.array([at]))[0]).argmax())
            told = drawn if is_tempered else p
            second, best = np.sort(told)[-2:]
            entropy = -sum(x * math.log(x) for x in told if x > 0)
            value = {"probability": told[token], "entropy": -entropy, "margin": best - second}
            low, high = np.sort(p)[-2:]
            guesses[at] = Guess(
                token, math.log(p[token]), value[self.policy.confidence],
                -sum(x * math.log(x) for x in p if x > 0), high - low,
            )  # fmt: skip
        return guesses


def softmax(row: np.ndarray) -> np.ndarray:
    weights = np.exp(row - row.max())
    return weights / weights.sum()
