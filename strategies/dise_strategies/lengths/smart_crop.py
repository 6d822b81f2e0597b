"""SmartCrop cuts the canvas where one pass expects the end. Source: SmartCrop, 2026."""

import numpy as np
from pydantic import Field

from dise_core import Denoiser, Generation, Ids, LengthController, Plan, TokenLogProbs
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_strategies.lengths.probing import end_of, probe, refuse_blocks, write_best


class SmartCrop(LengthController):
    """Cuts a canvas of max_tokens masks where the response has probably ended, then
    writes it.

    One pass tells P_j, the probability of the end token at each mask. The first i with
    (1 - P_1) ... (1 - P_i) < tau is the last token; that product is the `score` of the
    trace's one step. Refuses block-causal models, and models without an end token.
    """

    tau: float = Field(default=0.5, ge=0, le=1)
    """Probability of going on below which the canvas is cut."""

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        refuse_blocks("smart-crop", denoiser)
        ends = TokenLogProbs(np.full(denoiser.max_tokens, end_of(denoiser)))
        [reading] = yield from probe(prompt, [denoiser.max_tokens], denoiser, ends)
        survival = np.cumprod(1 - np.exp(reading.logprobs, dtype=np.float64))
        length = min(int((survival >= self.tau).sum()) + 1, denoiser.max_tokens)
        values = {length: float(survival[length - 1])}
        return (yield from write_best(prompt, values, denoiser, scorer, "survival"))
