"""The perplexity of a response under an auto-regressive judge, the paper's LLaMA baseline."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np

from dise_core import Plan, Read, Score, Scorer, Selector, TokenLogProbs, TokenSequence


class ARPerplexity(Scorer):
    """Has the judge read prompt and response in its own tokens and chat template; the value is its
    mean log p per token.

    Only the response's tokens count, end tokens left out: log p(token | prompt, tokens before it),
    exact, in one forward pass of the judge. `log_likelihood` is their sum, `perplexity`
    exp(-value). A judge's tokens are not the selected ones, so the selector must be
    "response-text", which is the default.
    """

    default_selector: ClassVar[str] = "response-text"
    asks: ClassVar[Literal["target", "judge"]] = "judge"

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        """Return a plan of the mean, in nats, over the selected tokens of a text in the judge's
        tokens. The first token of a text is left out: nothing precedes it.
        """
        positions = np.flatnonzero(selector.select(sequence))
        positions = positions[positions > 0]
        if len(positions) == 0:
            return Score.of_nothing()
        [reading] = yield [
            Read(sequence.ids, positions, TokenLogProbs(sequence.ids[positions]), predictor="judge")
        ]
        total = float(reading.logprobs.sum(dtype=np.float64))
        mean = total / len(positions)
        return Score(mean, positions, log_likelihood=total, perplexity=math.exp(-mean))
