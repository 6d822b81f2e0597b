"""LR-DLLM's length: the one at which the model is surer than the length alone explains. Source:
LR-DLLM, 2026.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dise_core import LengthController, Plan
from dise_core.arrays import Floats, Ids
from dise_core.params.base import Length
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.writing.denoise import Denoiser
from dise_core.writing.generation import Generation
from dise_strategies.lengths.probing import refuse_blocks, sureness, written

LEAST_GAIN = 1e-12
"""What a length must be worth more than another to take its place."""


class LRLength(LengthController):
    """Finds the length with the least entropy for its length, then writes it.

    A(L) is the negative entropy in nats, the mean over L masks behind the prompt, in one forward
    pass. It is probed at L = 1, 2, 4, ... up to `longest_probe` and max_tokens, and A = a + k ln L
    is fitted to these by least squares. From the L with the largest CL(L) = A(L) - k ln L, of
    equals the shortest, it moves by one token as long as CL grows, at most to max_tokens. Then it
    writes as usual; the paper finds the length anew after each token. In the trace `score` is CL.
    Made for infilling, where a text follows the masks. Refuses block-causal models.
    """

    longest_probe: Length = 128
    """The longest length that is probed for the fit."""

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        refuse_blocks("lr-length", denoiser)
        limit = min(self.longest_probe, denoiser.max_tokens)
        lengths = [2**i for i in range(limit.bit_length())]
        entropies = yield from sureness(prompt, lengths, denoiser, "entropy")
        slope = _slope(np.log(lengths), entropies)
        values = _calibrated(lengths, entropies, slope)
        last, best = 0, _surest(1, lengths, values)
        while best != last:
            neighbours = [n for n in (best - 1, best + 1) if 0 < n <= denoiser.max_tokens]
            if new := [n for n in neighbours if n not in values]:
                entropies = yield from sureness(prompt, new, denoiser, "entropy")
                values |= _calibrated(new, entropies, slope)
            last, best = best, _surest(best, neighbours, values)
        stopped_by = "max_tokens" if best == denoiser.max_tokens else "calibrated_length"
        return (yield from written(prompt, best, denoiser, scorer, values, stopped_by))


def _slope(logs: Floats, entropies: Floats) -> float:
    """Return k of the line A = a + k ln L; 0 for one point."""
    spread = logs - logs.mean()
    return float(spread @ entropies / (spread @ spread or 1.0))


def _calibrated(lengths: Sequence[int], entropies: Floats, slope: float) -> dict[int, float]:
    return dict(zip(lengths, (entropies - slope * np.log(lengths)).tolist(), strict=True))


def _surest(best: int, lengths: Sequence[int], values: Mapping[int, float]) -> int:
    """Return the length with the largest value, the first of equals; `best` if none is larger."""
    for length in lengths:
        if values[length] > values[best] + LEAST_GAIN:
            best = length
    return best
