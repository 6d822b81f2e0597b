"""The perplexity under an auto-regressive judge, the paper's LLaMA baseline."""

import math
from typing import ClassVar, Literal

import numpy as np

from dise_core import Plan, Read, Score, Scorer, Selector, TokenLogProbs, TokenSequence


class ARPerplexity(Scorer):
    """Mean log-probability of the response's tokens under an auto-regressive judge.

    The judge reads prompt and response in its own tokens and chat template, in one
    forward pass, end tokens left out. `log_likelihood` is the sum, `perplexity`
    exp(-value). Its tokens are not those that a selector chooses from, so that must be
    "response-text", the default.
    """

    suits: ClassVar[str] = "auto-regressive models, which no other scorer can read"
    default_selector: ClassVar[str] = "response-text"
    asks: ClassVar[Literal["target", "judge"]] = "judge"

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        """A text's first token is left out: nothing precedes it."""
        positions = np.flatnonzero(selector.select(sequence))
        positions = positions[positions > 0]
        if len(positions) == 0:
            return Score.empty()
        targets = TokenLogProbs(sequence.ids[positions])
        [reading] = yield [Read(sequence.ids, positions, targets, predictor="judge")]
        total = float(reading.logprobs.sum(dtype=np.float64))
        mean = total / len(positions)
        return Score(mean, positions, log_likelihood=total, perplexity=math.exp(-mean))
