"""Scores, and the report on every token."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple, Self

import numpy as np

from dise_core.arrays import Floats, Ids, LogProbs, Weights
from dise_core.plans.reading import Read, Reading
from dise_core.records import json_number
from dise_core.sequence import TokenSequence

Under = Literal["forced tokens left out", "forced"]
"""How a score takes account of a constraint: it forced none, some or all of the tokens."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a log-likelihood lies between, in nats. A bound with a standard error is an
    estimate, and holds in expectation alone.
    """

    lower: float
    upper: float
    lower_standard_error: float | None = None
    upper_standard_error: float | None = None


class Summand(NamedTuple):
    """A term of a weighted sum of scores: its name, its weight and its value."""

    name: str
    weight: float
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """How sure the model is of a text: `value`, higher is surer, in nats per token by
    default.

    positions: int64 [num_positions], the scored positions; without any the value is -inf, which
    ranks last, or 0 if a constraint forced all that is selected.
    standard_error: None for a deterministic scorer. log_likelihood: log p(response |
    prompt) in nats, from a scorer that estimates it. perplexity: exp(-log_likelihood / n)
    over the scorer's own n tokens. is_mean: whether the value is known to be a mean of
    log-probabilities.
    bounds: of the log-likelihood, from a scorer that has some. under: of an answer that a
    constraint wrote, "forced tokens left out" or, where those are all, "forced", and 0.
    summands: of a weighted sum of other
    values, for whoever asks why it is what it is. weights: float [num_positions], of a
    weighted mean; None where all positions count alike.
    """

    value: float
    positions: Ids
    standard_error: float | None = None
    log_likelihood: float | None = None
    perplexity: float | None = None
    is_mean: bool = False
    bounds: Bounds | None = None
    under: Under | None = None
    summands: tuple[Summand, ...] = ()
    weights: Weights = None

    @classmethod
    def mean_of(cls, logprobs: LogProbs | Floats, positions: Ids, weights: Weights = None) -> Self:
        """Return the mean of logprobs [M >= 1] at positions [M], summed in float64.
        weights: what each token of the text counts, [N], as a selector returns them; if
        none counts, that is the empty score.
        """
        if weights is None:
            mean = float(np.mean(logprobs, dtype=np.float64))
            return cls(mean, positions, is_mean=True)
        shares = weights[positions].astype(np.float64)
        if not shares.any():
            return cls.empty()
        value = float(shares @ logprobs.astype(np.float64) / shares.sum())
        return cls(value, positions, is_mean=True, weights=shares)

    @classmethod
    def empty(cls) -> Self:
        """Return the score where no position is selected."""
        return cls(-math.inf, np.zeros(0, np.int64))

    @classmethod
    def of_nothing(cls) -> Self:
        """Return `empty()`, by the name that goes in DiSE 0.2."""
        warnings.warn(
            "Score.of_nothing is now Score.empty: write the new name, as the old one goes in "
            "DiSE 0.2.",
            DeprecationWarning,
            stacklevel=2,
        )
        return cls.empty()

    @property
    def num_positions(self) -> int:
        """The number of positions that were read."""
        return len(self.positions)

    @property
    def token_probability(self) -> float | None:
        """The geometric mean of the tokens' probabilities; None if it is not known."""
        if self.perplexity is None:
            return math.exp(self.value) if self.is_mean else None
        return 1 / self.perplexity

    @property
    def rank_value(self) -> float:
        """What candidates are ranked by: the log-likelihood if any, else the value."""
        return self.value if self.log_likelihood is None else self.log_likelihood

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form; numbers that are not finite become null."""
        record: dict[str, object] = {
            "value": json_number(self.value),
            "num_positions": self.num_positions,
            "standard_error": json_number(self.standard_error),
        }
        for name in ("log_likelihood", "perplexity"):
            if (number := getattr(self, name)) is not None:
                record[name] = json_number(number)
        if self.under is not None:
            record["constraint"] = self.under
        if self.bounds is not None:
            bounds = asdict(self.bounds)
            record["bounds"] = {name: json_number(bound) for name, bound in bounds.items()}
        return record


@dataclass(frozen=True, slots=True, eq=False)
class TokenReport:
    """The log-probabilities of regenerating each token of a response, in nats.

    logprobs: float32 [R]. top_ids, top_logprobs: [R, k], the k likeliest tokens, k >= 0.
    """

    logprobs: LogProbs
    top_ids: Ids
    top_logprobs: LogProbs


@dataclass(frozen=True, slots=True, eq=False)
class Transcript:
    """What a scorer read and was answered about one text, batch by batch, and the score
    that it made of that. text: as the scorer got it.
    """

    text: TokenSequence
    score: Score
    batches: Sequence[Sequence[tuple[Read, Reading]]]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """A text's score and, if asked for, the report on its response's tokens, and what the
    scorer was answered: one transcript, or none where nothing was there to be scored.
    """

    score: Score
    tokens: TokenReport | None = None
    transcripts: Sequence[Transcript] | None = None
