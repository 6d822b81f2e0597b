"""A scorer bound to what it scores over, reporting on every token of the response in the same
forward pass, or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dise_core.interfaces import Scorer, Selector
from dise_core.outputs import Evaluation, TokenReport
from dise_core.reading import Plan, Read, TokenLogProbs, TopLogProbs, gather
from dise_core.sequence import TokenSequence


@dataclass(frozen=True, slots=True)
class SequenceScorer:
    """Scores texts with one scorer over one selector.

    `top_logprobs`: how many likely tokens to report per position; None makes no report.
    """

    scorer: Scorer
    selector: Selector
    top_logprobs: int | None = 0

    def evaluate(self, sequence: TokenSequence) -> Plan[Evaluation]:
        """Return a plan of the evaluation of a finished text: its score, and a report on every
        token of the response.

        The report regenerates every response token with the whole text as context, so it shares a
        scorer's row where the scorer reads the unmasked text, and costs one more forward pass where
        it does not.
        """
        plans: list[Plan[Any]] = [self.scorer.score(sequence, self.selector)]
        if self.top_logprobs is not None:
            plans.append(regenerate(sequence, self.top_logprobs))
        score, *tokens = yield from gather(*plans)
        return Evaluation(score, *tokens)


def regenerate(sequence: TokenSequence, top_logprobs: int = 0) -> Plan[TokenReport]:
    """Return a plan of the report on the response's tokens, given the whole text."""
    positions = sequence.response_positions
    if len(positions) == 0:
        nothing = np.zeros((0, top_logprobs))
        return TokenReport(
            np.zeros(0, np.float32), nothing.astype(np.int64), nothing.astype(np.float32)
        )
    reads = [Read(sequence.ids, positions, TokenLogProbs(sequence.response))]
    if top_logprobs:
        reads.append(Read(sequence.ids, positions, TopLogProbs(top_logprobs)))
    regenerated, *top = yield reads
    if top:
        return TokenReport(regenerated.logprobs, top[0].token_ids, top[0].logprobs)
    nothing = np.zeros((len(positions), 0))
    return TokenReport(regenerated.logprobs, nothing.astype(np.int64), nothing.astype(np.float32))
