"""What a predictor's answer must be: checked where it enters, so that a bad one fails the requests
that asked, and no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dise_core.errors import ModelError, ModelOutputError
from dise_core.model import MaskPredictor
from dise_core.reading import Candidates, Distribution, Read, Reading, TokenLogProbs, TopLogProbs
from dise_core.sequence import are_within

Number = TypeVar("Number", np.int64, np.float32, np.float64)

ROUNDING = 1e-3
"""How far above 0 a log-probability may come out, in nats."""


def checked(
    predictor: MaskPredictor, name: str, reads: Sequence[Read], readings: Sequence[object]
) -> Sequence[Reading]:
    """Return the readings, one for each read.

    Raises ModelOutputError for NaN, with the position, and ModelError, which names the predictor
    and the rule, for an answer that is not a Reading of the read's shape, whose ids are outside the
    vocabulary, forbidden or not those asked for, or whose log-probabilities are above 0.
    """
    rule = _broken_rule(reads, readings, predictor.info.vocab_size)
    if rule is not None:
        kind = type(predictor)
        raise ModelError(
            f"predictor {name!r} ({kind.__module__}.{kind.__qualname__}) gave a bad answer: {rule}"
        )
    return readings  # type: ignore[return-value]


def _broken_rule(reads: Sequence[Read], readings: Sequence[object], vocab_size: int) -> str | None:
    """Return the first rule that the readings break. Their fields may be of any type, so that
    comparing them may raise anything, and that is a broken rule too.
    """
    try:
        pairs = list(zip(reads, cast(Sequence[Reading], readings), strict=True))
        return next(_broken_rules(pairs, vocab_size), None)
    except ModelOutputError:
        raise
    except Exception as error:
        return f"checking it failed with {type(error).__name__}: {error}"


def _broken_rules(pairs: Sequence[tuple[Read, Reading]], vocab_size: int) -> Iterator[str]:
    """Yield the rules that readings break, each with what was found. Numbers are checked together,
    as checking those of one position takes as long as those of a hundred.
    """
    for read, reading in pairs:
        if rule := _broken_shape(read, reading, vocab_size):
            yield rule
    tables = [reading.logprobs for _, reading in pairs]
    rows = _joined([table for table in tables if table.ndim == 1])
    for logprobs in (rows, *(table for table in tables if table.ndim > 1)):
        if logprobs.size and not (highest := logprobs.max()) <= ROUNDING:
            if np.isnan(highest):
                raise _nan(pairs)
            yield f"log-probabilities must be at most 0, not {highest}"
    asked = [
        (read.readout.targets, reading.token_ids)
        for read, reading in pairs
        if isinstance(read.readout, TokenLogProbs)
    ]
    if (_joined([targets for targets, _ in asked]) != _joined([ids for _, ids in asked])).any():
        yield "token_ids must be the targets that were asked for"
    if not are_within(_joined([reading.token_ids.ravel() for _, reading in pairs]), vocab_size):
        yield f"token_ids must be in 0..{vocab_size - 1}"
    yield from _broken_draws(
        [(read.readout, its) for read, its in pairs if isinstance(read.readout, Candidates)]
    )


def _broken_draws(drawn: Sequence[tuple[Candidates, Reading]]) -> Iterator[str]:
    if np.isnan(_joined([reading.confidences for _, reading in drawn])).any():
        yield "confidences must be numbers"
    for forbidden in {readout.forbidden for readout, _ in drawn}:
        ids = _joined([its.token_ids for readout, its in drawn if readout.forbidden == forbidden])
        if len(found := ids[np.isin(ids, forbidden)]):
            yield f"the candidate {found[0]} is forbidden, as the mask always is"


def _broken_shape(read: Read, reading: object, vocab_size: int) -> str | None:
    if not isinstance(reading, Reading):
        return f"it must be a Reading, not {type(reading).__name__}"
    shape = _shape(read, vocab_size)
    fields = [("token_ids", "iu", reading.token_ids), ("logprobs", "f", reading.logprobs)]
    if isinstance(read.readout, Candidates):
        fields.append(("confidences", "f", reading.confidences))
    for field, kinds, value in fields:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            return f"{field} must be an array of {'integers' if kinds == 'iu' else 'floats'}"
        if value.shape != shape:
            return f"{field} must have the shape {shape}, not {value.shape}"
    return None if 0 <= reading.share <= 1 else f"share must be in 0..1, not {reading.share}"


def _joined(arrays: Sequence[NDArray[Number]]) -> NDArray[Number]:
    return np.concatenate(arrays) if arrays else np.array(arrays)


def _shape(read: Read, vocab_size: int) -> tuple[int, ...]:
    num_positions = len(read.positions)
    match read.readout:
        case TopLogProbs(k):
            return (num_positions, min(k, vocab_size))
        case Distribution():
            return (num_positions, vocab_size)
        case _:
            return (num_positions,)


def _nan(pairs: Sequence[tuple[Read, Reading]]) -> ModelOutputError:
    """Return the error that names the first position where a reading holds NaN."""
    read, reading = next(pair for pair in pairs if np.isnan(pair[1].logprobs).any())
    per_position = np.isnan(reading.logprobs).reshape(len(read.positions), -1).any(axis=1)
    position = int(read.positions[int(np.argmax(per_position))])
    return ModelOutputError(
        f"the model's logits at position {position} hold NaN or infinity; check its weights, or "
        "load it with dtype float32"
    )
