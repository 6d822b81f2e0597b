"""Written: what the model knew of each token when it wrote it, for no pass at all."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from dise_core import Confidence, Floats, Plan, Score, Scorer, Selector, TokenSequence
from dise_core.history import Writing

OTHERS: Mapping[str, Callable[[Floats], float]] = {"least": np.min, "sum": sum}
"""What may be made of the values instead of their mean."""


class Written(Scorer):
    """How sure the model was of the selected tokens at the steps that wrote them: log p(x_i | the
    text as it stood), untempered, in nats.

    No forward pass, and only for answers that are generated with it. A token that was
    edited or revised has its newest value; one that nobody chose is left out. Late tokens
    are seen with nearly all others, so calibrate the score before you read it as a
    probability. Training: on masks alone is enough.
    """

    suits: ClassVar[str] = "answers, if trained on masks alone: 0.81 (dise 0.51)"
    needs_writing: ClassVar[bool] = True
    reads_end: ClassVar[bool] = False

    signal: Literal["logprob", "entropy", "margin"] = "logprob"
    """The value of each token: its log-probability, or the negative entropy or the margin
    of the distribution that it came from."""
    aggregate: Literal["mean", "least", "sum"] = "mean"
    """The mean, the least or the sum over the tokens."""

    @property
    def takes_weights(self) -> bool:  # type: ignore[override]
        return self.aggregate == "mean"

    @property
    def recorded(self) -> tuple[Confidence, ...]:
        return () if self.signal == "logprob" else (self.signal,)

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        yield from ()
        writing = sequence.own_writing()
        assert writing is not None, "a scorer that needs the writing gets texts with it"
        values = np.where(np.isnan(writing.logprobs), np.nan, self._values(writing))
        positions = np.flatnonzero(selector.select(sequence) & ~np.isnan(values))
        if len(positions) == 0:
            return Score.empty()
        if self.aggregate != "mean":
            return Score(float(OTHERS[self.aggregate](values[positions])), positions)
        score = Score.mean_of(values[positions], positions, selector.weights(sequence))
        return replace(score, is_mean=self.signal == "logprob")

    def _values(self, writing: Writing) -> Floats:
        if self.signal == "logprob":
            return writing.logprobs.astype(np.float64)
        return writing.confidence(self.signal)
