"""Leave one out: DiSE with each token's own pull on the model divided out."""

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from dise_core import Plan, Read, Score, Scorer, Selector, TokenLogProbs, TokenSequence
from dise_core.arrays import Floats


class LeaveOneOut(Scorer):
    """Mean log p(x_i | all but x_i) over the selected positions, in nats, by the pass of `dise`.

    Uniform noise keeps a token with probability a, or draws any of K, so a visible token's
    log-odds are those that the others give it plus b = log(1 + K a / (1 - a)), which is
    taken off again. Where the n - 1 others all fit and the share of noise was drawn from
    0..1, a = n / (n + 1), so b = log(1 + K n). n: the tokens of a canvas, or of the
    response where the model has none. On small models its ROC-AUC is level with that of
    `dise` or 0.01 below it. Source: arXiv 2605.22765.
    """

    takes_weights: ClassVar[bool] = True
    needs_uniform_noise: ClassVar[bool] = True

    kept: float | None = Field(default=None, gt=0, lt=1)
    """The share a of tokens that the noise is taken to have kept; none: n / (n + 1)."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = np.flatnonzero(selector.select(sequence))
        if len(positions) == 0:
            return Score.empty()
        targets, start = TokenLogProbs(sequence.ids[positions]), sequence.prompt_length
        [reading] = yield [Read(sequence.ids, positions, targets, start=start)]
        # An adapter's rounding may put a log-probability a little above 0.
        logprobs = np.minimum(reading.logprobs.astype(np.float64), 0.0)
        values = -np.logaddexp(0.0, self._pull(sequence) - _log_odds(logprobs))
        return Score.mean_of(values, positions, selector.weights(sequence))

    def _pull(self, sequence: TokenSequence) -> float:
        """Return what a token adds to its own log-odds."""
        canvas = sequence.canvas_length or len(sequence.response)
        odds = canvas if self.kept is None else self.kept / (1 - self.kept)
        # Under uniform noise the id of what is hidden is the vocabulary's size.
        return math.log1p(sequence.special.masking_id * odds)


@np.errstate(divide="ignore")  # p = 1 has odds of inf
def _log_odds(logprobs: Floats) -> Floats:
    odds: Floats = logprobs - np.log(-np.expm1(logprobs))
    return odds
