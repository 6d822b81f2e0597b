"""The conformance check of Reads with a context."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dise_core.arrays import Ids
from dise_core.blocks import BlockGrid
from dise_core.model import BlockCausal, MaskPredictor
from dise_core.reading import Read, TokenLogProbs


def check_two_streams(predictor: MaskPredictor, texts: Sequence[Ids], tolerance: float) -> None:
    """Check that a block-causal model that reads two streams answers each block as in the text
    whose earlier blocks are finished.
    """
    attention, mask_id = predictor.info.attention, predictor.info.special.mask_id
    if not isinstance(attention, BlockCausal) or mask_id is None:
        return
    if "two-stream" not in predictor.abilities:
        return
    for ids in texts:
        masked, everywhere = ids.copy(), np.arange(len(ids))
        masked[::2] = mask_id
        read = Read(masked, everywhere, TokenLogProbs(ids), context_ids=ids)
        [together] = predictor.read([read])
        for start, stop in BlockGrid(attention.length).spans(0, len(ids)):
            text, where = np.append(ids[:start], masked[start:stop]), everywhere[start:stop]
            [alone] = predictor.read([Read(text, where, TokenLogProbs(ids[where]))])
            difference = np.abs(alone.logprobs - together.logprobs[where]).max()
            if difference > tolerance:
                raise AssertionError(
                    "with context_ids a block must be read after the finished ones before it: its "
                    f"log-probabilities differ by {difference}"
                )
