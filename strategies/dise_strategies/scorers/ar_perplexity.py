"""The perplexity of a response under an auto-regressive judge, the paper's LLaMA baseline."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np

from dise_core import InputError, Plan, Read, Score, Scorer, Selector, TokenLogProbs, TokenSequence


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
        """Return a plan of the mean, in nats. Raises InputError for a selector that leaves out some
        of the text.
        """
        chosen = np.flatnonzero(selector.select(sequence))
        text = sequence.text_positions
        if (
            not np.array_equal(np.intersect1d(chosen, text), text)
            or (chosen < sequence.prompt_length).any()
        ):
            raise InputError(
                "ar-perplexity takes the whole response: its selector is response-text", "selector"
            )
        if len(text) == 0:
            return Score.of_nothing()
        judged = sequence.in_tokens_of("judge")
        positions = judged.response_positions[judged.response_positions > 0]
        if len(positions) == 0:
            return Score.of_nothing()
        [reading] = yield [
            Read(judged.ids, positions, TokenLogProbs(judged.ids[positions]), predictor="judge")
        ]
        total = float(reading.logprobs.sum(dtype=np.float64))
        mean = total / len(positions)
        return Score(mean, text, log_likelihood=total, perplexity=math.exp(-mean))
