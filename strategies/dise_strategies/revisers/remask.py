"""Remask: tokens that the model doubts are masked and written again."""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from dise_core import Denoiser, Generation, InputError, Plan, Reviser, TokenSequence
from dise_core.arrays import Ids, LogProbs
from dise_core.params.base import MAX_LENGTH, Length
from dise_core.plans.cost import count_nfe
from dise_core.scoring.score import TokenReport
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.writing.revisions import Revision, rewritten
from dise_strategies.scorers.masked import masked_read
from dise_strategies.unmasking.ranked import LowConfidence


class Remask(Reviser):
    """Masks the response tokens that the model doubts, and writes them again.

    A round masks the least probable tokens, ties leftmost. It writes them one a step over
    the whole response, the surest first; on a block-causal model block by block, each
    against the finished ones before it. The new text takes the place of the old if it is
    better (`accept`, whose scores the trace tells). It ends after `rounds` rounds, when
    nothing is masked, when a round writes a text that there was, or when a text is not
    accepted. A round costs a pass for each masked token, and those of the score; read
    interleaved, two more, and two in the end. Training: on masks alone is enough with
    `read` interleaved, and with `accept` always, or score with a scorer for which it is.
    Source: T2M.
    """

    threshold: float = Field(default=0.9, ge=0, le=1)
    """A token less probable than this is doubted."""
    read: Literal["visible", "interleaved"] = "visible"
    """Tokens are read in place, or in two passes that mask every second one."""
    max_tokens: Length = 16
    """The most tokens that a round masks."""
    rounds: int = Field(default=4, ge=1, le=64)
    """The most rounds."""
    accept: Literal["better", "score", "always"] = "better"
    """What a new text needs to take the place of the old: a higher DiSE over the whole
    response, a higher value of the request's own scorer, or nothing."""

    def check(self, scorer: SequenceScorer) -> None:
        if self.accept == "score" and scorer.scorer.needs_writing:
            raise InputError(
                f"remask's accept 'score' with {scorer.name}: what is written again is always "
                "surer; take another",
                "reviser_settings",
            )

    def revise(
        self, generation: Generation, denoiser: Denoiser, scorer: SequenceScorer
    ) -> Plan[Generation]:
        denoiser = replace(denoiser, policy=LowConfidence())
        now, revisions = generation, list[Revision]()
        evaluated = {now.sequence.ids.tobytes(): now}
        for number in range(self.rounds):
            logprobs, num_reads = yield from count_nfe(self._logprobs(now))
            masked = self._masked(now.sequence, logprobs)
            if len(masked) == 0:
                break
            text = denoiser.rewrite(now.sequence, masked, number * MAX_LENGTH)
            (new, is_new), nfe = yield from count_nfe(_evaluate(text, scorer, evaluated))
            before, after = self._value(now), self._value(new)
            is_accepted = is_new and (self.accept == "always" or after > before)
            tokens = rewritten(now.sequence, new.sequence, masked)
            revisions.append(Revision(tokens, before, after, num_reads + nfe, is_accepted))
            if not is_accepted:
                break
            now = new
        return replace(
            generation, sequence=now.sequence, evaluation=now.evaluation, revisions=tuple(revisions)
        )

    def _logprobs(self, generation: Generation) -> Plan[LogProbs]:
        """Return a plan of the response's log-probabilities, float32 [R]."""
        if self.read == "visible":
            return _tokens(generation).logprobs
        text, size = generation.sequence, len(generation.sequence.response)
        logprobs = np.zeros(size, np.float32)
        for start in range(min(2, size)):
            half = text.response_positions[start::2]
            [reading] = yield [masked_read(text, half, half)]
            logprobs[start::2] = reading.logprobs
        return logprobs

    def _masked(self, text: TokenSequence, logprobs: LogProbs) -> Ids:
        """Return the positions that are masked, in order."""
        probabilities = np.exp(logprobs, dtype=np.float64)
        probabilities[text.is_forced] = 1.0  # which a constraint would write again
        order = np.argsort(probabilities, kind="stable")[: self.max_tokens]
        doubted = order[probabilities[order] < self.threshold]
        return text.prompt_length + np.sort(doubted)

    def _value(self, generation: Generation) -> float:
        if self.accept == "score":
            return generation.evaluation.score.value
        logprobs, text = _tokens(generation).logprobs, generation.sequence
        return float(np.mean(logprobs[~text.is_forced], dtype=np.float64))


def _evaluate(
    plan: Plan[TokenSequence], scorer: SequenceScorer, evaluated: dict[bytes, Generation]
) -> Plan[tuple[Generation, bool]]:
    """Return a plan of a text, evaluated, and whether it is new."""
    text = yield from plan
    key = text.ids.tobytes()
    if is_new := key not in evaluated:
        evaluated[key] = Generation(text, (yield from scorer.evaluate(text)))
    return evaluated[key], is_new


def _tokens(generation: Generation) -> TokenReport:
    assert generation.evaluation.tokens is not None, "a reviser's scorer reports on every token"
    return generation.evaluation.tokens
