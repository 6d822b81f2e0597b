"""What a scorer asked about a text and was answered, and what follows of each of its tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import methodcaller

import numpy as np

from dise_core.arrays import Floats, Ids, Mask
from dise_core.models.pieces import pieces
from dise_core.models.tokenizer import Tokenizer
from dise_core.plans.plan import Plan, started
from dise_core.plans.reading import Read, Reading
from dise_core.plans.readouts import TokenLogProbs
from dise_core.scoring.score import Score
from dise_core.scoring.scorer import Scorer, Selector
from dise_core.sequence import TokenSequence


@dataclass(slots=True, eq=False)
class Record:
    """The Reads of one scorer, each with its batch, from 1, and its answer; `watched` fills it in.
    text: as the scorer got it; score: what it made of the answers.
    """

    text: TokenSequence | None = None
    score: Score | None = None
    answers: list[tuple[int, Read, Reading]] = field(default_factory=list)


def watched(plan: Plan[Score], text: TokenSequence, record: Record) -> Plan[Score]:
    """Return a plan that yields the same Reads, is sent the same Readings, and returns the same."""
    record.text, batch = text, 0
    with started([plan]) as [running]:
        while not running.is_done:
            reads, batch = running.reads, batch + 1
            try:
                readings = yield reads
            except Exception as error:
                running.advance(methodcaller("throw", error))
            else:
                record.answers += [(batch, *pair) for pair in zip(reads, readings, strict=True)]
                running.advance(methodcaller("send", readings))
    record.score = running.result
    return running.result


@dataclass
class Account:
    """A score and all that is known of how it came about. text: as the scorer got it, [N]; given:
    before an end token was added; tokenizers: of the models, "target" and possibly "judge".
    """

    text: TokenSequence
    score: Score
    answers: list[tuple[int, Read, Reading]]
    given: TokenSequence
    scorer: Scorer
    selector: Selector
    tokenizers: Mapping[str, Tokenizer]

    def asks_own(self, read: Read) -> bool:
        """Return whether a Read asks for tokens of the text where they stand. It may hold masks,
        and more or fewer tokens at the end.
        """
        length = min(len(read.token_ids), len(self.text))
        ids, own = read.token_ids[:length], self.text.ids[:length]
        if not isinstance(read.readout, TokenLogProbs):
            return False
        if ((ids != own) & (ids != self.text.special.mask_id)).any():
            return False
        is_inside = read.positions < length
        targets = read.readout.targets[is_inside]
        return np.array_equal(targets, own[read.positions[is_inside]])

    @cached_property
    def told(self) -> dict[int, list[tuple[int, float]]]:
        """By position the Reads, counted from 1, that asked for the text's token, and what each was
        answered.
        """
        told: dict[int, list[tuple[int, float]]] = {}
        for number, (_, read, reading) in enumerate(self.answers, start=1):
            if self.asks_own(read):
                pairs = zip(read.positions.tolist(), reading.logprobs.tolist(), strict=True)
                for position, logprob in pairs:
                    told.setdefault(position, []).append((number, logprob))
        return told

    @cached_property
    def once(self) -> Floats:
        """The log-probability of each token that one Read asked for, else NaN, float64 [N]."""
        once = np.full(len(self.text), np.nan)
        for position, answers in self.told.items():
            if len(answers) == 1 and position < len(once):
                once[position] = answers[0][1]
        return once

    @cached_property
    def written(self) -> tuple[Floats, Ids]:
        """Each token's log-probability when it was written, NaN if given, and its step, else -1."""
        if (writing := self.text.own_writing()) is not None:
            return writing.logprobs.astype(np.float64), writing.steps
        return np.full(len(self.text), np.nan), np.full(len(self.text), -1)

    @cached_property
    def names(self) -> list[str]:
        """What each token adds to the text, or the name of a special token."""
        tokenizer, ids = self.tokenizers[self.scorer.asks], self.text.ids
        return [
            piece
            or ("" if tokenizer.decode(ids[at : at + 1]) else tokenizer.token_text(int(ids[at])))
            for at, piece in enumerate(pieces(tokenizer, ids))
        ]

    @cached_property
    def forced(self) -> Mask:
        """Which tokens the constraint forced, as far as the score takes account of it, [N]."""
        forced = self.text.mask_of([])
        if self.text.rule is not None and self.scorer.is_among_allowed:
            forced[self.given.response_positions] = self.text.rule.is_forced(self.given.response)
        return forced
