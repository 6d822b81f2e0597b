"""A scorer bound to what it scores over, reporting on every token of the response in the same
forward pass, or not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.errors import InputError
from dise_core.interfaces import Scorer, Selector
from dise_core.outputs import Evaluation, Score, TokenReport
from dise_core.prompts import Translation
from dise_core.reading import Plan, Read, TokenLogProbs, TopLogProbs, gather
from dise_core.sequence import TokenSequence


@dataclass(frozen=True, slots=True)
class SequenceScorer:
    """Scores texts with one scorer over one selector.

    `top_logprobs`: how many likely tokens to report per position; None makes no report.
    `translation`: how the judge reads the texts, for a scorer that asks it. `name`: what errors
    call the scorer.
    """

    scorer: Scorer
    selector: Selector
    top_logprobs: int | None = 0
    translation: Translation | None = None
    name: str = "this scorer"

    def score(self, sequence: TokenSequence) -> Plan[Score]:
        """Return a plan of the score of a finished text.

        A scorer that asks the judge is handed the text in the judge's tokens and takes the whole
        response; its positions are then those of the response's own tokens that are not end tokens.
        Raises InputError for a selector that leaves out some of those, and where no judge is
        loaded or it cannot read the text.
        """
        if self.scorer.asks == "target":
            return (yield from self.scorer.score(sequence, self.selector))
        text = self._judged_positions(sequence)
        if len(text) == 0:
            return Score.of_nothing()
        if self.translation is None:
            raise InputError(
                "no model 'judge' is loaded that could read the text in its own tokens", "judge"
            )
        judged = self.translation.of(sequence)
        score = yield from self.scorer.score(judged, _WholeResponse())
        return replace(score, positions=text) if score.num_positions else score

    def _judged_positions(self, sequence: TokenSequence) -> Ids:
        """Return the positions that a judge's score is taken over. A judge's tokens are not the
        selected ones, so it raises InputError unless all of the text is selected, and no prompt.
        """
        chosen, text = np.flatnonzero(self.selector.select(sequence)), sequence.text_positions
        if len(np.setdiff1d(text, chosen)) or (chosen < sequence.prompt_length).any():
            raise InputError(
                f"{self.name} takes the whole response: its selector is response-text", "selector"
            )
        return text

    def evaluate(self, sequence: TokenSequence) -> Plan[Evaluation]:
        """Return a plan of the evaluation of a finished text: its score, and a report on every
        token of the response.

        The report regenerates every response token with the whole text as context, so it shares a
        scorer's row where the scorer reads the unmasked text, and costs one more forward pass where
        it does not. Raises what `score` raises.
        """
        plans: list[Plan[Any]] = [self.score(sequence)]
        if self.top_logprobs is not None:
            plans.append(regenerate(sequence, self.top_logprobs))
        score, *tokens = yield from gather(*plans)
        return Evaluation(score, *tokens)


class _WholeResponse(Selector):
    """Selects the response, whatever its tokens are."""

    def select(self, sequence: TokenSequence) -> Mask:
        """Return M, bool [N]."""
        return sequence.mask_of(sequence.response_positions)


def regenerate(sequence: TokenSequence, top_logprobs: int = 0) -> Plan[TokenReport]:
    """Return a plan of the report on the response's tokens, given the whole text."""
    positions = sequence.response_positions
    shape = (len(positions), top_logprobs)
    ids, logprobs = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    if len(positions) == 0:
        return TokenReport(np.zeros(0, np.float32), ids, logprobs)
    reads = [Read(sequence.ids, positions, TokenLogProbs(sequence.response))]
    if top_logprobs:
        reads.append(Read(sequence.ids, positions, TopLogProbs(top_logprobs)))
    regenerated, *top = yield reads
    if top:
        ids, logprobs = top[0].token_ids, top[0].logprobs
    return TokenReport(regenerated.logprobs, ids, logprobs)
