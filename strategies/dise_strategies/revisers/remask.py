"""Remask: what the model is least sure of is masked and written again."""

from __future__ import annotations

from dataclasses import replace
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


class Remask(Reviser):
    """Masks the response tokens that the model would hardly write again, and writes them again.

    A round masks the tokens whose probability of being regenerated is below `threshold`, at most
    `max_tokens` of them, the least probable, each with `widen` neighbours on either side. It writes
    them one a step over the whole response, the surest first, whatever the request's rate and
    unmasking policy; on a block-causal model block by block on the model's own grid, each masked
    block against the finished ones before it, so that later blocks see what has changed. The new
    text takes the place of the old if its score is better, or always (`accept`). It ends after
    `rounds` rounds, when nothing is masked, when a round writes a text that there was, or when the
    text is kept as it is. The probabilities come from the pass that reports on the scored text, so
    a round costs one pass a masked token and those of the score.
    """

    threshold: float = Field(0.9, ge=0, le=1)
    max_tokens: Length = 16
    widen: int = Field(0, ge=0, le=MAX_LENGTH)
    rounds: int = Field(4, ge=1, le=MAX_ROUNDS)
    accept: Literal["better", "always"] = "better"

    def revise(
        self, generation: Generation, denoiser: Denoiser, scorer: SequenceScorer
    ) -> Plan[Generation]:
        """Return a plan of the response as it stands after the last round."""
        text, evaluation = generation.sequence, generation.evaluation
        denoiser = replace(denoiser, policy=LowConfidence())
        seen, revisions = {text.ids.tobytes(): evaluation}, list[Revision]()
        for number in range(self.rounds):
            report = evaluation.tokens or (yield from regenerate(text))
            masked = self._doubted(text, report)
            if len(masked) == 0:
                break
            round_ = self._round(text, masked, number, denoiser, scorer, seen)
            (new, its, is_new), nfe = yield from count_nfe(round_)
            is_accepted = is_new and (self.accept == "always" or _is_better(its, evaluation))
            scores = (evaluation.score.value, its.score.value)
            revisions.append(Revision(rewritten(text, new, masked), *scores, nfe, is_accepted))
            if not is_accepted:
                break
            text, evaluation = new, its
        return replace(
            generation, sequence=text, evaluation=evaluation, revisions=tuple(revisions)
        )

    def _doubted(self, text: TokenSequence, report: TokenReport) -> Ids:
        """Return the positions to mask, int64 [M], ascending."""
        probabilities = np.exp(report.logprobs, dtype=np.float64)
        order = np.argsort(probabilities, kind="stable")[: self.max_tokens]
        least = order[probabilities[order] < self.threshold]
        chosen = np.zeros(len(probabilities), np.bool_)
        for at in least.tolist():
            chosen[max(at - self.widen, 0) : at + self.widen + 1] = True
        return text.prompt_length + np.flatnonzero(chosen)

    def _round(
        self,
        text: TokenSequence,
        masked: Ids,
        number: int,
        denoiser: Denoiser,
        scorer: SequenceScorer,
        seen: dict[bytes, Evaluation],
    ) -> Plan[tuple[TokenSequence, Evaluation, bool]]:
        """Return a plan of the text with the masked tokens written again, its evaluation, and
        whether there was no such text before; only a new one is evaluated, and added to `seen`.
        """
        new = yield from denoiser.rewrite(text, masked, number * MAX_LENGTH)
        key = new.ids.tobytes()
        is_new = key not in seen
        if is_new:
            seen[key] = yield from scorer.evaluate(new)
        return new, seen[key], is_new


def _is_better(new: Evaluation, old: Evaluation) -> bool:
    return new.score.rank_value > old.score.rank_value
