"""Flexible-length generation guided by the score. Source: the paper, Algorithm 1."""

from __future__ import annotations

from typing import Literal

import numpy as np

from dise_core import LengthController, Plan
from dise_core.arrays import Ids
from dise_core.cache import Caching
from dise_core.cost import count_nfe
from dise_core.denoise import Denoiser
from dise_core.outputs import Evaluation, Generation, LengthStep
from dise_core.params import Length
from dise_core.scoring import SequenceScorer
from dise_core.sequence import TokenSequence
from dise_strategies.lengths.patience import Patience

STEPS_APART = 2**32
"""The distance between the first denoising steps of two iterations, so that none share noise."""

Iterate = tuple[TokenSequence, Evaluation]


class DiSEFlexible(LengthController):
    """Extends a response one token at a time for as long as its score improves.

    Each iteration masks the last min(D, response length) tokens of the previous text, appends one
    mask, denoises that tail and scores the text; D grows by one each time. Returns the text with
    the best score. Stops by "patience" after K iterations in a row without improvement, by
    "max_iterations" after M_max texts in all, by "context" if one more token would not fit the
    model. End tokens are removed from the first text only; later ones stay in the extended text. On
    a block-causal model the tail is denoised block by block on the model's own grid, and the blocks
    before it keep their keys, values and log-probabilities from iteration to iteration. Source: the
    paper, Algorithm 1.
    """

    max_iterations: Length = 10
    """M_max: the number of texts in all, so at most M_max - 1 extensions."""
    patience: Length = 4
    """K: the number of iterations in a row without improvement after which it stops."""
    mask_size: Length = 20
    """D of the first extension."""

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        """Return a plan of the best text; the trace holds every iteration."""
        caching = denoiser.caching(len(prompt) + denoiser.max_tokens + self.max_iterations - 1)
        current, nfe = yield from count_nfe(self._first(prompt, denoiser, scorer, caching))
        best, trace = current, [_step(1, current, nfe)]
        patience = Patience(self.patience, _value(current))
        stopped_by = "max_iterations"
        for t in range(2, self.max_iterations + 1):
            if len(current[0]) + 1 > denoiser.max_length:
                stopped_by = "context"
                break
            extension = self._extend(current[0], t, denoiser, scorer, caching)
            current, nfe = yield from count_nfe(extension)
            trace.append(_step(t, current, nfe))
            if _value(current) > patience.best:
                best = current
            patience = patience.after(_value(current))
            if patience.is_exhausted:
                stopped_by = "patience"
                break
        finish_reason: Literal["stop", "length"] = "stop" if stopped_by == "patience" else "length"
        return Generation(*best, tuple(trace), stopped_by, finish_reason)

    def _first(
        self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer, caching: Caching
    ) -> Plan[Iterate]:
        """Return a plan of the first text: of the base length, then without its end tokens."""
        written = yield from denoiser.write(prompt, denoiser.max_tokens, caching)
        ids = np.concatenate([prompt, written.ids[written.text_positions]])
        return (yield from _scored(denoiser.text(ids, len(prompt)), scorer))

    def _extend(
        self,
        text: TokenSequence,
        t: int,
        denoiser: Denoiser,
        scorer: SequenceScorer,
        caching: Caching,
    ) -> Plan[Iterate]:
        """Return a plan of the text of iteration t >= 2, which extends the given text."""
        num_masked = min(self.mask_size + t - 2, len(text.response))
        start = len(text) - num_masked
        canvas = np.concatenate([text.ids[:start], denoiser.masks(num_masked + 1)])
        ids = yield from denoiser.denoise(
            canvas, start, text.prompt_length, first_step=t * STEPS_APART, caching=caching
        )
        return (yield from _scored(denoiser.text(ids, text.prompt_length), scorer))


def _scored(text: TokenSequence, scorer: SequenceScorer) -> Plan[Iterate]:
    evaluation = yield from scorer.evaluate(text)
    return text, evaluation


def _value(iterate: Iterate) -> float:
    return iterate[1].score.value


def _step(iteration: int, iterate: Iterate, nfe: int) -> LengthStep:
    return LengthStep(iteration, len(iterate[0].response), _value(iterate), nfe)
