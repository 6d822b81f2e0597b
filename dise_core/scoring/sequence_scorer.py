"""A scorer bound to its selector, with a report on every response token where it is wanted."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dise_core.arrays import Ids, Mask, Weights
from dise_core.errors import InputError
from dise_core.models.prompts import Translation
from dise_core.plans.plan import Plan, answer_by, gather
from dise_core.plans.reading import Read, Reading
from dise_core.plans.readouts import TokenLogProbs, TopLogProbs
from dise_core.scoring.contract import check_weights, scored
from dise_core.scoring.memory import Memory, remembering
from dise_core.scoring.restricted import Unforced
from dise_core.scoring.score import Evaluation, Score, TokenReport, Transcript
from dise_core.scoring.scorer import Narrowing, Scorer, Selector
from dise_core.sequence import TokenSequence


@dataclass(frozen=True, slots=True)
class SequenceScorer:
    """Scores texts with one scorer and one selector. `top_logprobs`: how many likely
    tokens to report per position; None makes no report. `translation`: how the judge
    reads the texts. `name`: the scorer's in error messages. `memory`: what is known of
    the response from writing it. `end_id`: the end token that follows a text, read with
    it and never selected; None for texts that are whole or go on. `explains`: whether
    evaluations have a transcript. Raises InputError for a selector with weights that the
    scorer does not take.
    """

    scorer: Scorer
    selector: Selector
    top_logprobs: int | None = 0
    translation: Translation | None = None
    name: str = "this scorer"
    memory: Memory = field(default_factory=Memory)
    end_id: int | None = None
    explains: bool = False

    def __post_init__(self) -> None:
        check_weights(self.name, self.scorer, self.selector)

    def score(self, sequence: TokenSequence) -> Plan[Score]:
        """Return a plan of the score of a finished text. A judge scores the whole
        response in its own tokens, and the positions are the response's. Raises
        InputError for another selector then, without a judge, and for a given text if the
        scorer reads how it was written.
        """
        return (yield from remembering(self._score(sequence), self.memory))

    def _score(
        self, sequence: TokenSequence, transcripts: list[Transcript] | None = None
    ) -> Plan[Score]:
        if self.scorer.needs_writing and sequence.own_writing() is None:
            raise InputError(
                f"{self.name} reads how a text was written, and a given text has no "
                "record of it; use it where answers are generated, and for given ones "
                "'interleaved'",
                "scorer",
            )
        if self.scorer.asks == "judge":
            return (yield from self._judged(sequence, transcripts))
        text, selector = sequence, self.selector
        if self.end_id is not None and self.scorer.reads_end:
            selector = Before(inner=selector, length=len(sequence))
            text = sequence.ended(self.end_id)
        if sequence.rule is not None:
            selector = Unforced(inner=selector)
        return (yield from self._asked(text, selector, transcripts))

    def _asked(
        self, text: TokenSequence, selector: Selector, transcripts: list[Transcript] | None
    ) -> Plan[Score]:
        plan = self._checked(text, selector)
        if transcripts is not None:
            plan = _transcribe(plan, text, transcripts)
        return (yield from plan)

    def _checked(self, text: TokenSequence, selector: Selector) -> Plan[Score]:
        score = yield from scored(self.scorer, text, selector)
        return selector.marked(score, text) if isinstance(selector, Unforced) else score

    def _judged(self, sequence: TokenSequence, transcripts: list[Transcript] | None) -> Plan[Score]:
        selection, text = np.flatnonzero(self.selector.select(sequence)), sequence.text_positions
        if len(np.setdiff1d(text, selection)) or (selection < sequence.prompt_length).any():
            raise InputError(
                f"{self.name} takes the whole response: its selector is response-text", "selector"
            )
        if len(text) == 0:
            return Score.empty()
        if self.translation is None:
            raise InputError(
                "no model 'judge' is loaded that could read the text in its own tokens", "judge"
            )
        judged = self.translation.of(sequence)
        score = yield from self._asked(judged, WholeResponse(), transcripts)
        return replace(score, positions=text) if score.num_positions else score

    def evaluate(self, sequence: TokenSequence) -> Plan[Evaluation]:
        """Return a plan of the score and, unless top_logprobs is None, of the report on
        all tokens. It shares the scorer's row, or costs a pass. Raises what `score`
        raises.
        """
        transcripts: list[Transcript] | None = [] if self.explains else None
        plans: list[Plan[Any]] = [self._score(sequence, transcripts)]
        if self.top_logprobs is not None:
            text = sequence.ended(self.end_id)
            plans.append(regenerate(sequence, self.top_logprobs, text.ids))
        score, *reports = yield from remembering(gather(*plans), self.memory)
        return Evaluation(score, reports[0] if reports else None, transcripts)


def _transcribe(
    plan: Plan[Score], text: TokenSequence, transcripts: list[Transcript]
) -> Plan[Score]:
    """Return the plan, which leaves a transcript of its Reads and their answers."""
    batches: list[list[tuple[Read, Reading]]] = []

    def answer(reads: Sequence[Read]) -> Plan[Sequence[Reading]]:
        readings = yield reads
        batches.append(list(zip(reads, readings, strict=True)))
        return readings

    score = yield from answer_by(plan, answer)
    transcripts.append(Transcript(text, score, batches))
    return score


class WholeResponse(Selector):
    """Selects the whole response, end tokens included."""

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(sequence.response_positions)


class Before(Narrowing):
    """Selects what another selector does of a text's first `length` tokens alone."""

    length: int

    def select(self, sequence: TokenSequence) -> Mask:
        mask = self.inner.select(self._text(sequence))
        return sequence.mask_of(np.flatnonzero(mask))

    def weights(self, sequence: TokenSequence) -> Weights:
        text = self._text(sequence)
        weights, num_more = self.inner.weights(text), len(sequence) - len(text)
        return None if weights is None else np.pad(weights, (0, num_more))

    def _text(self, sequence: TokenSequence) -> TokenSequence:
        return replace(sequence, ids=sequence.ids[: self.length])


def regenerate(
    sequence: TokenSequence, top_logprobs: int = 0, ids: Ids | None = None
) -> Plan[TokenReport]:
    """Return a plan of the log-probability of regenerating each response token given the
    whole text, with the likeliest tokens of all.
    ids: the text and what follows it, int64 [>= N].
    """
    ids = sequence.ids if ids is None else ids
    positions = sequence.response_positions
    shape = (len(positions), top_logprobs)
    top_ids, logprobs = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    if len(positions) == 0:
        return TokenReport(np.zeros(0, np.float32), top_ids, logprobs)
    start = sequence.prompt_length
    reads = [Read(ids, positions, TokenLogProbs(sequence.response), start=start)]
    if top_logprobs:
        reads.append(Read(ids, positions, TopLogProbs(top_logprobs), start=start))
    regenerated, *top = yield reads
    if top:
        top_ids, logprobs = top[0].token_ids, top[0].logprobs
    return TokenReport(regenerated.logprobs, top_ids, logprobs)
