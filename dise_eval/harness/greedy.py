"""Whether greedy decoding would write a response, for both kinds of models."""

from __future__ import annotations

import numpy as np

from dise_core import Candidates, Plan, Read, TokenSequence
from dise_core.arrays import Ids
from dise_core.plans.reading import Guidance


def is_denoised_greedily(text: TokenSequence, cfg_scale: float = 0.0) -> Plan[bool]:
    """Return a plan of whether greedy denoising, from as many masks as the response has
    tokens, writes exactly the response.

    Each step reads the likeliest token at every mask, which may be the mask token itself,
    and commits only the one that the model is surest of. `cfg_scale` guides each step by
    the text with its prompt masked. Of equally likely tokens the lower id counts, of
    equally sure ones the lower position. A committed token never changes, so the first
    wrong one ends the check: it costs at least one forward pass and at most one per
    token, twice that when guided. Source: LLaDA's evaluation, suffix_greedy_prediction.
    Under block-causal attention, whose blocks count from the text's start, they are
    written one after the other.
    """
    spans = [(text.prompt_length, text.response_end)]
    if text.origin == "text":
        spans = list(text.blocks.spans(*spans[0]))
    for span in spans:
        if not (yield from _is_written(text, np.arange(*span), cfg_scale)):
            return False
    return True


def _is_written(text: TokenSequence, masked: Ids, cfg_scale: float) -> Plan[bool]:
    while len(masked):
        guidance = Guidance.without_prompt(text, masked, cfg_scale)
        ids, start = text.with_masks(masked), text.prompt_length
        [reading] = yield [Read(ids, masked, Candidates(), guidance=guidance, start=start)]
        surest = int(np.argmax(reading.confidences))
        if reading.token_ids[surest] != text.ids[masked[surest]]:
            return False
        masked = np.delete(masked, surest)
    return True


def is_continued_greedily(judged: TokenSequence) -> Plan[bool]:
    """Return a plan of whether each token of the response is the judge's likeliest given
    those before it. judged: the text in the judge's tokens.

    It reads the same text as ar-perplexity, so both share a forward pass. Of equally
    likely tokens the lower id counts. The first token of a text with neither a prompt nor
    a begin-of-text token is left out: nothing precedes it.
    """
    positions = judged.response_positions[judged.response_positions > 0]
    if len(positions) == 0:
        return True
    [reading] = yield [Read(judged.ids, positions, Candidates(), predictor="judge")]
    return bool((reading.token_ids == judged.ids[positions]).all())
