"""A score as a weighted sum of log-probabilities, for whoever wants its gradient."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from dise_core.arrays import Floats, Ids, Weights
from dise_core.plans.plan import READS_AT_ONCE, Plan
from dise_core.plans.reading import Read
from dise_core.scoring.score import Score


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The Reads of a score, each with the weights of the log-probabilities that answer it,
    float64 [M]: value == sum(weights @ logprobs). positions: those that count, int64;
    without any there is no score. is_mean: whether the value is a mean.
    """

    reads: Sequence[Read] = ()
    weights: Sequence[Floats] = ()
    positions: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    is_mean: bool = False

    @classmethod
    def mean_of(cls, reads: Sequence[Read], positions: Ids, weights: Weights = None) -> Self:
        """Return the terms of the mean over all log-probabilities of the Reads. weights:
        what each token of the text counts, [N], as a selector returns them.
        """
        counts = [
            np.ones(len(read.positions)) if weights is None else weights[read.positions]
            for read in reads
        ]
        total = sum(float(of_read.sum()) for of_read in counts)
        if total == 0:
            return cls()
        return cls(reads, [of_read / total for of_read in counts], positions, is_mean=True)

    def score(self) -> Plan[Score]:
        """Return a plan of the score that is their sum."""
        if len(self.positions) == 0:
            return Score.empty()
        value = 0.0
        for start in range(0, len(self.reads), READS_AT_ONCE):
            batch = slice(start, start + READS_AT_ONCE)
            readings = yield self.reads[batch]
            for reading, weights in zip(readings, self.weights[batch], strict=True):
                value += float(weights @ reading.logprobs.astype(np.float64))
        return Score(value, self.positions, is_mean=self.is_mean)
