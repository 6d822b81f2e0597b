"""Greedy path: the text is revealed token by token, the surest first. Source: iLLaDA."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dise_core import Plan, Read, Score, Scorer, Selector, TokenLogProbs, TokenSequence
from dise_core.arrays import Ids, LogProbs


class GreedyPath(Scorer):
    """The sum of log p(x_i | prompt and the tokens revealed before it), in nats, where each step
    reveals the selected token that is the surest: for ranking candidates.

    All selected response tokens are masked first; prompt tokens, and tokens that are not selected,
    are always seen. The order depends on the text itself, so the sum is no log-likelihood. One
    forward pass a token. A block-causal model reveals each block after the finished earlier ones;
    since these are given, one pass reveals a token of every block, as many passes as the fullest
    block has selected tokens. Training: on masks alone is enough. Source: iLLaDA (arXiv
    2606.25331), its confidence-based scoring.
    """

    default_selector: ClassVar[str] = "response"
    reads_end: ClassVar[bool] = False

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        response = sequence.response_positions
        chosen = hidden = response[selector.select(sequence)[response]]
        if len(chosen) == 0:
            return Score.of_nothing()
        total = 0.0
        while len(hidden):
            masked, targets = sequence.with_masks(hidden), TokenLogProbs(sequence.ids[hidden])
            [reading] = yield [Read(masked, hidden, targets, context_ids=sequence.ids)]
            surest = _surest(sequence, hidden, reading.logprobs)
            total += float(reading.logprobs[surest].sum(dtype=np.float64))
            hidden = np.delete(hidden, surest)
        return Score(total, chosen)


def _surest(sequence: TokenSequence, hidden: Ids, logprobs: LogProbs) -> Ids:
    """Return the indices of each block's surest hidden token, or of the text's; of equals the
    leftmost.
    """
    if sequence.origin == "response":
        return np.array([np.argmax(logprobs)])
    blocks = hidden // sequence.block_length
    starts = np.flatnonzero(np.diff(blocks, prepend=-1))
    ends = [*starts[1:], len(hidden)]
    return np.array([s + np.argmax(logprobs[s:e]) for s, e in zip(starts, ends, strict=True)])
