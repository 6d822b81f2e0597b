"""What is shared by length controllers that probe lengths before they write."""

from collections.abc import Mapping, Sequence

import numpy as np

from dise_core import Denoiser, Ids, InputError, Plan, Reading, Readout
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.writing.generation import Generation, LengthStep


def refuse_blocks(name: str, denoiser: Denoiser) -> None:
    """Raise InputError for a block-causal model, which cannot look ahead."""
    if denoiser.info.block_length is not None:
        raise InputError(
            f"{name} looks ahead, and {denoiser.info.name!r} sees nothing behind a block: its "
            "attention is block-causal; use 'until-end', which finds the length by writing",
            "length",
        )


def end_of(denoiser: Denoiser) -> int:
    """Return the id of the end token. Raises InputError for a model that has none."""
    if denoiser.special.eos_id is None:
        raise InputError(
            "this model has no end token, so its length cannot be found this way; use 'fixed'",
            "length",
        )
    return denoiser.special.eos_id


def probe(
    prompt: Ids, lengths: Sequence[int], denoiser: Denoiser, readout: Readout
) -> Plan[Sequence[Reading]]:
    """Return a plan of the readings at the masks of each length, all in one round."""
    start, reads = len(prompt), []
    for length in lengths:
        ids = np.concatenate([prompt, denoiser.masks(length), denoiser.suffix])
        reads.append(denoiser.ask(ids, np.arange(start, start + length), readout, start))
    return (yield reads)


def write_best(
    prompt: Ids,
    values: Mapping[int, float],
    denoiser: Denoiser,
    scorer: SequenceScorer,
    reason: str,
) -> Plan[Generation]:
    """Return a plan of the response of the length with the largest value. The values are
    in the order of the probes; the first of equals wins. reason: why it stopped, unless
    at max_tokens.
    """
    length = max(values, key=values.__getitem__)
    text = yield from denoiser.once().write(prompt, length)
    nfe = 2 if denoiser.params.cfg_scale else 1
    steps = (LengthStep(i, *pair, nfe) for i, pair in enumerate(values.items(), start=1))
    stopped_by = "max_tokens" if length == denoiser.max_tokens else reason
    return Generation(text, (yield from scorer.evaluate(text)), tuple(steps), stopped_by)
