"""What a predictor's answer must be: checked where it enters, so that a bad one fails the requests
that asked, and no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dise_core.errors import ModelError, ModelOutputError
from dise_core.model import MaskPredictor
from dise_core.reading import Candidates, Distribution, Read, Reading, TokenLogProbs, TopLogProbs

ROUNDING = 1e-3
"""How far above 0 a log-probability may come out, in nats."""


def checked(
    predictor: MaskPredictor, name: str, reads: Sequence[Read], readings: Sequence[object]
) -> Sequence[Reading]:
    """Return the readings, one for each read.

    Raises ModelOutputError for NaN, with the position, and ModelError, which names the predictor
    and the rule, for an answer that is not a Reading of the read's shape, whose ids are outside the
    vocabulary or not those asked for, or whose log-probabilities are above 0.
    """
    for read, reading in zip(reads, readings, strict=True):
        rule = _broken_rule(read, reading, predictor.info.vocab_size)
        if rule is not None:
            kind = type(predictor)
            raise ModelError(
                f"predictor {name!r} ({kind.__module__}.{kind.__qualname__}) gave a bad answer: "
                f"{rule}"
            )
    return readings  # type: ignore[return-value]


def _broken_rule(read: Read, reading: object, vocab_size: int) -> str | None:
    """Return the first rule that a reading breaks. Its fields may be of any type, so that comparing
    them may raise anything, and that is a broken rule too.
    """
    try:
        return next(_broken_rules(read, reading, vocab_size), None)
    except ModelOutputError:
        raise
    except Exception as error:
        return f"checking it failed with {type(error).__name__}: {error}"


def _broken_rules(read: Read, reading: object, vocab_size: int) -> Iterator[str]:
    """Yield the rules that a reading breaks, each with what was found."""
    if not isinstance(reading, Reading):
        yield f"it must be a Reading, not {type(reading).__name__}"
        return
    shape = _shape(read, vocab_size)
    for field, kinds in (("token_ids", "iu"), ("logprobs", "f")):
        value = getattr(reading, field)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            yield f"{field} must be an array of {'integers' if kinds == 'iu' else 'floats'}"
        elif value.shape != shape:
            yield f"{field} must have the shape {shape}, not {value.shape}"
    if not 0 <= reading.share <= 1:
        yield f"share must be in 0..1, not {reading.share}"
    if reading.logprobs.size:
        yield from _broken_values(read, reading, vocab_size)


def _broken_values(read: Read, reading: Reading, vocab_size: int) -> Iterator[str]:
    ids, highest = reading.token_ids, reading.logprobs.max()
    if np.isnan(highest):
        raise _nan(read, reading.logprobs)
    if highest > ROUNDING:
        yield f"log-probabilities must be at most 0, not {highest}"
    if isinstance(read.readout, TokenLogProbs):
        if not np.array_equal(ids, read.readout.targets):
            yield "token_ids must be the targets that were asked for"
    elif not 0 <= ids.min() <= ids.max() < vocab_size:
        yield f"token_ids must be in 0..{vocab_size - 1}"
    if isinstance(read.readout, Candidates):
        confidences = reading.confidences
        if not isinstance(confidences, np.ndarray) or confidences.shape != ids.shape:
            yield f"confidences must be an array of the shape {ids.shape}"
        elif confidences.dtype.kind != "f" or np.isnan(confidences.max()):
            yield "confidences must be numbers"


def _shape(read: Read, vocab_size: int) -> tuple[int, ...]:
    num_positions = len(read.positions)
    match read.readout:
        case TopLogProbs(k):
            return (num_positions, min(k, vocab_size))
        case Distribution():
            return (num_positions, vocab_size)
        case _:
            return (num_positions,)


def _nan(read: Read, logprobs: object) -> ModelOutputError:
    """Return the error that names the first position where a reading holds NaN."""
    per_position = np.isnan(np.asarray(logprobs)).reshape(len(read.positions), -1).any(axis=1)
    position = int(read.positions[int(np.argmax(per_position))])
    return ModelOutputError(
        f"the model's logits at position {position} hold NaN or infinity; check its weights, or "
        "load it with dtype float32"
    )
