"""Greedy path: the text is revealed token by token, the surest first. Source: iLLaDA."""

from typing import ClassVar

import numpy as np

from dise_core import Plan, Read, Score, Scorer, Selector, TokenLogProbs, TokenSequence
from dise_likelihoods.texts import factors


class GreedyPath(Scorer):
    """The sum of log p(x_i | prompt and tokens revealed before it), in nats, surest token first.

    For ranking candidates. All selected response tokens are masked first; of equals the leftmost
    is revealed. This is no log-likelihood: positions are picked by the given tokens themselves, so
    over all texts exp(value) sums to more than 1. "duel" picks them by what the model would write,
    and sums to 1. One pass a token; a block-causal model reveals a token of every block in a pass.
    Training: on masks alone is enough. Source: iLLaDA (arXiv 2606.25331), its confidence-based
    scoring.
    """

    default_selector: ClassVar[str] = "response"
    reads_end: ClassVar[bool] = False

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        response = sequence.response_positions
        selected = hidden = response[selector.select(sequence)[response]]
        if len(selected) == 0:
            return Score.empty()
        total, logprobs = 0.0, np.zeros(len(sequence), np.float32)
        while len(hidden):
            masked, targets = sequence.with_masks(hidden), TokenLogProbs(sequence.ids[hidden])
            [reading] = yield [Read(masked, hidden, targets, context_ids=sequence.ids)]
            logprobs[hidden] = reading.logprobs
            surest = [part[np.argmax(logprobs[part])] for part in factors(sequence, hidden)]
            total += float(logprobs[surest].sum(dtype=np.float64))
            hidden = np.setdiff1d(hidden, surest)
        return Score(total, selected)
