"""What is known of how a score came about."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dise_core.arrays import Floats, Ids, Mask
from dise_core.models.pieces import pieces
from dise_core.models.tokenizer import Tokenizer
from dise_core.plans.reading import Read, Reading
from dise_core.plans.readouts import Candidates, Distribution, TokenLogProbs, TopLogProbs
from dise_core.rule import TextRule
from dise_core.scoring.explanation import OWN, ExplainedRead
from dise_core.scoring.score import Transcript
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.sequence import TokenSequence


@dataclass
class Account:
    """A score and all that is known of how it came about. bound: what scored it.
    response: the text before its end was added. tokenizer: of the text.
    """

    transcript: Transcript
    bound: SequenceScorer
    response: TokenSequence
    tokenizer: Tokenizer

    @property
    def text(self) -> TokenSequence:
        """The text as the scorer got it, [N]."""
        return self.transcript.text

    @cached_property
    def reads(self) -> tuple[ExplainedRead, ...]:
        batches = enumerate(self.transcript.batches, start=1)
        return tuple(self._read(number, *pair) for number, batch in batches for pair in batch)

    def _read(self, batch: int, read: Read, reading: Reading) -> ExplainedRead:
        logprobs = reading.logprobs if reading.logprobs.ndim == 1 else np.zeros(0)
        return ExplainedRead(
            batch,
            read.predictor,
            len(read.token_ids),
            tuple(np.flatnonzero(read.token_ids == self.text.special.mask_id).tolist()),
            self._asks(read),
            tuple(read.positions.tolist()),
            tuple(logprobs.tolist()),
            int(reading.is_known.sum()),
            read.shadow,
            read.guidance is not None,
        )

    def _asks(self, read: Read) -> str:
        match read.readout:
            case TokenLogProbs(targets):
                return OWN if self._is_own(read, targets) else "other tokens"
            case Candidates():
                return "the model's candidates"
            case TopLogProbs(k):
                return f"the {k} likeliest tokens"
            case Distribution():
                return "the whole distribution"

    def _is_own(self, read: Read, targets: Ids) -> bool:
        """Return whether a Read asks for tokens of the text where they stand. It may hold
        masks, and more or fewer tokens at the end.
        """
        length = min(len(read.token_ids), len(self.text))
        ids, own_ids = read.token_ids[:length], self.text.ids[:length]
        is_inside = read.positions < length
        is_same = (ids == own_ids) | (ids == self.text.special.mask_id)
        return bool(is_same.all()) and np.array_equal(
            targets[is_inside], own_ids[read.positions[is_inside]]
        )

    @cached_property
    def answers(self) -> dict[int, list[tuple[int, float]]]:
        """By position: the numbers of the Reads of the text's token, with the answers."""
        answers: dict[int, list[tuple[int, float]]] = {}
        for number, read in enumerate(self.reads, start=1):
            if read.asks.startswith(OWN):
                for position, logprob in zip(read.positions, read.logprobs, strict=True):
                    answers.setdefault(position, []).append((number, logprob))
        return answers

    @cached_property
    def logprobs(self) -> Floats:
        """Each token's log-probability, the mean of its answers; NaN without one, [N]."""
        logprobs = np.full(len(self.text), np.nan)
        for position, pairs in self.answers.items():
            if position < len(self.text):
                logprobs[position] = sum(logprob for _, logprob in pairs) / len(pairs)
        return logprobs

    @cached_property
    def writing(self) -> tuple[Floats, Ids]:
        """Each token's log-probability and step when written; NaN and -1 if given."""
        if (writing := self.text.own_writing()) is not None:
            return writing.logprobs.astype(np.float64), writing.steps
        return np.full(len(self.text), np.nan), np.full(len(self.text), -1)

    @property
    def counting(self) -> Ids:
        """The positions that count."""
        return self.transcript.score.positions

    @cached_property
    def names(self) -> list[str]:
        """What each token adds to the text, or the name of a special token."""
        ids = self.text.ids
        return [
            piece
            or ("" if self.tokenizer.decode(ids[[at]]) else self.tokenizer.token_text(int(ids[at])))
            for at, piece in enumerate(pieces(self.tokenizer, ids))
        ]

    @property
    def num_added(self) -> int:
        """Tokens that were added to a response to end it."""
        is_same_text = self.bound.scorer.asks == "target"
        return len(self.text) - len(self.response) if is_same_text else 0

    @property
    def rule(self) -> TextRule | None:
        """The constraint that the score takes account of."""
        return self.text.rule

    @cached_property
    def is_forced(self) -> Mask:
        """Which tokens the constraint forced, [N]."""
        is_forced, response = self.text.mask_of([]), self.response
        is_forced[response.response_positions] = response.is_forced
        return is_forced
