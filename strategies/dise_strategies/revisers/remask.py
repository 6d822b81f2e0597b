"""Remask: what the model is least sure of is masked and written again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from pydantic import Field

from dise_core import (
    Denoiser,
    Evaluation,
    Generation,
    Plan,
    Reviser,
    Revision,
    SequenceScorer,
    TokenReport,
    TokenSequence,
    count_nfe,
    regenerate,
)
from dise_core.arrays import Ids
from dise_core.params import MAX_LENGTH, Length
from dise_core.revisions import rewritten
from dise_strategies.unmasking.ranked import LowConfidence

MAX_ROUNDS = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Draft:
    """A text, how it is scored, and the probabilities of writing its tokens again."""

    text: TokenSequence
    evaluation: Evaluation
    report: TokenReport

    @property
    def dise(self) -> float:
        """DiSE over the whole response, which has a token."""
        return float(np.mean(self.report.logprobs, dtype=np.float64))


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
    rounds: int = Field(default=4, ge=1, le=MAX_ROUNDS)
    """The most rounds."""
    accept: Literal["better", "always"] = "better"
    """Whether a new text must have a higher DiSE to take the place of the old."""

    def revise(
        self, generation: Generation, denoiser: Denoiser, scorer: SequenceScorer
    ) -> Plan[Generation]:
        """Return a plan of the response as it stands after the last round."""
        text, evaluation = generation.sequence, generation.evaluation
        now = _Draft(text, evaluation, evaluation.tokens or (yield from regenerate(text)))
        denoiser = replace(denoiser, policy=LowConfidence())
        seen, revisions = {text.ids.tobytes(): now}, list[Revision]()
        for number in range(self.rounds):
            masked = self._doubted(now)
            if len(masked) == 0:
                break
            written = denoiser.rewrite(now.text, masked, number * MAX_LENGTH)
            (new, is_new), nfe = yield from count_nfe(_evaluated(written, scorer, seen))
            is_accepted = is_new and (self.accept == "always" or new.dise > now.dise)
            tokens = rewritten(now.text, new.text, masked)
            revisions.append(Revision(tokens, now.dise, new.dise, nfe, is_accepted))
            if not is_accepted:
                break
            now = new
        return replace(
            generation, sequence=now.text, evaluation=now.evaluation, revisions=tuple(revisions)
        )

    def _doubted(self, draft: _Draft) -> Ids:
        """Return the positions to mask, int64 [M], ascending."""
        probabilities = np.exp(draft.report.logprobs, dtype=np.float64)
        order = np.argsort(probabilities, kind="stable")[: self.max_tokens]
        is_masked = np.zeros(len(probabilities), np.bool_)
        for at in order[probabilities[order] < self.threshold].tolist():
            is_masked[max(at - self.widen, 0) : at + self.widen + 1] = True
        return draft.text.prompt_length + np.flatnonzero(is_masked)


def _evaluated(
    written: Plan[TokenSequence], scorer: SequenceScorer, seen: dict[bytes, _Draft]
) -> Plan[tuple[_Draft, bool]]:
    """Return a plan of a text, and whether it is new: only such a one is evaluated, and then added
    to the texts that are `seen`.
    """
    text = yield from written
    key = text.ids.tobytes()
    if key in seen:
        return seen[key], False
    evaluation = yield from scorer.evaluate(text)
    report = evaluation.tokens or (yield from regenerate(text))
    seen[key] = _Draft(text, evaluation, report)
    return seen[key], True
