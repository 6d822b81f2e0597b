"""Flexible-length generation guided by the score. Source: the paper, Algorithm 1."""

from dataclasses import replace
from typing import Literal

import numpy as np

from dise_core import Denoiser, Ids, LengthController, Plan, TokenSequence, count_nfe
from dise_core.params.base import Length
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.writing.generation import Generation, LengthStep

STEPS_APART = 2**32
"""Steps between the beginnings of iterations, so that none share noise."""


class DiSEFlexible(LengthController):
    """Extends a response one token at a time for as long as its score improves.

    Each iteration masks the last min(D, response length) tokens of the previous text,
    appends one mask, denoises that tail and scores the text; D grows by one each time.
    Returns the text with the best score. Stops by "patience" after K iterations in a row
    without improvement, by "max_iterations" after M_max texts in all, by "context" if one
    more token would not fit the model. End tokens are removed from the first text only. A
    block-causal model keeps what it knows of the blocks before the tail. Source: the
    paper, Algorithm 1.
    """

    max_iterations: Length = 10
    """M_max: the number of texts in all, so at most M_max - 1 extensions."""
    patience: Length = 4
    """K: the number of iterations in a row without improvement after which it stops."""
    mask_size: Length = 20
    """D of the first extension."""

    def longest(self, max_tokens: int) -> int:
        return max_tokens + self.max_iterations - 1

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        limit = len(prompt) + self.longest(denoiser.max_tokens)
        denoiser = replace(denoiser, most=limit)
        current, nfe = yield from count_nfe(_first(prompt, denoiser, scorer))
        best, num_failures, trace = current, 0, [_step(1, current, nfe)]
        stopped_by = "max_iterations"
        for t in range(2, self.max_iterations + 1):
            text = current.sequence
            if len(text) + 1 > denoiser.max_length:
                stopped_by = "context"
                break
            num_masked = min(self.mask_size + t - 2, len(text.response))
            extension = _extend(text, num_masked, t, denoiser, scorer)
            current, nfe = yield from count_nfe(extension)
            trace.append(_step(t, current, nfe))
            if _value(current) > _value(best):
                best, num_failures = current, 0
            else:
                num_failures += 1
            if num_failures == self.patience:
                stopped_by = "patience"
                break
        finish_reason: Literal["stop", "length"] = "stop" if stopped_by == "patience" else "length"
        return replace(best, trace=tuple(trace), stopped_by=stopped_by, finish_reason=finish_reason)


def _first(prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
    text = yield from denoiser.write(prompt, denoiser.max_tokens)
    positions = np.concatenate([np.arange(len(prompt)), text.text_positions])
    return (yield from _score(text.at(positions), scorer))


def _extend(
    text: TokenSequence, num_masked: int, t: int, denoiser: Denoiser, scorer: SequenceScorer
) -> Plan[Generation]:
    start = len(text) - num_masked
    ids = np.concatenate([text.ids[:start], denoiser.masks(num_masked + 1)])
    canvas = replace(text, ids=ids)
    longer = yield from denoiser.denoise(canvas, start, first_step=t * STEPS_APART)
    return (yield from _score(longer, scorer))


def _score(text: TokenSequence, scorer: SequenceScorer) -> Plan[Generation]:
    return Generation(text, (yield from scorer.evaluate(text)))


def _value(generation: Generation) -> float:
    return generation.evaluation.score.value


def _step(iteration: int, generation: Generation, nfe: int) -> LengthStep:
    return LengthStep(iteration, len(generation.sequence.response), _value(generation), nfe)
