"""Remask: what the model is least sure of is masked and written again."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from dise_core import (
    Denoiser,
    Generation,
    Plan,
    Reviser,
    Revision,
    SequenceScorer,
    TokenSequence,
    count_nfe,
)
from dise_core.arrays import Ids, LogProbs
from dise_core.params.base import MAX_LENGTH, Length
from dise_core.writing.revisions import rewritten
from dise_strategies.unmasking.ranked import LowConfidence


class Remask(Reviser):
    """Masks the response tokens that the model would hardly write again, and writes them again.

    A round masks the tokens whose probability of being regenerated is below `threshold`, at most
    `max_tokens` of them, the least probable, each with `widen` neighbours on either side. It writes
    them one a step over the whole response, the surest first, whatever the request's rate and
    unmasking policy; on a block-causal model block by block on the model's own grid, each masked
    block against the finished ones before it, so that later blocks see what has changed. The new
    text takes the place of the old if its DiSE over the whole response is higher, or always
    (`accept`). It ends after `rounds` rounds, when nothing is masked, when a round writes a text
    that there was, or when a text is not accepted. The probabilities come from the pass that
    reports on the scored text, so a round costs a pass for each masked token, and the passes of
    the score unless the text is one that there was. In the trace scores are DiSE over the whole
    response.
    """

    threshold: float = Field(default=0.9, ge=0, le=1)
    """Tokens less probable than this, when regenerated, are masked."""
    max_tokens: Length = 16
    """The most tokens that a round masks, the least probable first."""
    widen: int = Field(default=0, ge=0, le=MAX_LENGTH)
    """Neighbours on either side that are masked with each."""
    rounds: int = Field(default=4, ge=1, le=64)
    """The most rounds."""
    accept: Literal["better", "always"] = "better"
    """Whether a new text must have a higher DiSE to take the place of the old."""

    def revise(
        self, generation: Generation, denoiser: Denoiser, scorer: SequenceScorer
    ) -> Plan[Generation]:
        denoiser = replace(denoiser, policy=LowConfidence())
        now, revisions = generation, list[Revision]()
        seen = {now.sequence.ids.tobytes(): now}
        for number in range(self.rounds):
            masked = self._doubted(now)
            if len(masked) == 0:
                break
            text = denoiser.rewrite(now.sequence, masked, number * MAX_LENGTH)
            (new, is_new), nfe = yield from count_nfe(_evaluated(text, scorer, seen))
            before, after = _dise(now), _dise(new)
            is_accepted = is_new and (self.accept == "always" or after > before)
            tokens = rewritten(now.sequence, new.sequence, masked)
            revisions.append(Revision(tokens, before, after, nfe, is_accepted))
            if not is_accepted:
                break
            now = new
        return replace(
            generation, sequence=now.sequence, evaluation=now.evaluation, revisions=tuple(revisions)
        )

    def _doubted(self, generation: Generation) -> Ids:
        probabilities = np.exp(_logprobs(generation), dtype=np.float64)
        order = np.argsort(probabilities, kind="stable")[: self.max_tokens]
        is_masked = np.zeros(len(probabilities), np.bool_)
        for index in order[probabilities[order] < self.threshold].tolist():
            is_masked[max(index - self.widen, 0) : index + self.widen + 1] = True
        return generation.sequence.prompt_length + np.flatnonzero(is_masked)


def _evaluated(
    plan: Plan[TokenSequence], scorer: SequenceScorer, seen: dict[bytes, Generation]
) -> Plan[tuple[Generation, bool]]:
    """Return a plan of a text, and whether it is new: only then it is evaluated, and added to
    `seen`.
    """
    text = yield from plan
    key = text.ids.tobytes()
    if key in seen:
        return seen[key], False
    seen[key] = Generation(text, (yield from scorer.evaluate(text)))
    return seen[key], True


def _logprobs(generation: Generation) -> LogProbs:
    assert generation.evaluation.tokens is not None, "a reviser's scorer reports on every token"
    return generation.evaluation.tokens.logprobs


def _dise(generation: Generation) -> float:
    return float(np.mean(_logprobs(generation), dtype=np.float64))
