"""What plans and predictors promise: lists of Reads, and answers that fit them. A bad one
fails only the requests that asked.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dise_core.arrays import Ids
from dise_core.errors import ModelError, ModelOutputError
from dise_core.models.predictor import MaskPredictor
from dise_core.plans.reading import Read, Reading
from dise_core.plans.readouts import Candidates, TokenLogProbs, TopLogProbs, has_confidences
from dise_core.sequence import are_within

MAX_EMPTY_QUESTIONS = 1000
"""Empty lists in a row that a plan may yield before it fails."""

Number = TypeVar("Number", np.int64, np.float32, np.float64)

ROUNDING = 1e-3
"""How far above 0 a log-probability may come out, in nats."""


def bad_answer(
    predictor: MaskPredictor, name: str, reads: Sequence[Read], readings: Sequence[Reading]
) -> ModelError | None:
    """Return what is wrong with the readings, one for each read; None if nothing is.

    ModelOutputError for NaN, with the position, and ModelError, which names the predictor
    and the rule, for an answer that is not a Reading of the read's shape, whose ids are
    outside the vocabulary, forbidden or not those asked for, or whose log-probabilities
    are above 0.
    """
    cause = None
    try:
        pairs = list(zip(reads, readings, strict=True))
        rule = next(_broken_rules(pairs, predictor.info.vocab_size), None)
    except ModelOutputError as error:
        return error
    except Exception as error:  # fields of any type may raise anything when they are compared
        rule, cause = f"checking it failed with {type(error).__name__}: {error}", error
    if rule is None:
        return None
    cls = type(predictor)
    bad = ModelError(
        f"predictor {name!r} ({cls.__module__}.{cls.__qualname__}) gave a bad answer: {rule}"
    )
    bad.__cause__ = cause
    return bad


def _broken_rules(pairs: Sequence[tuple[Read, Reading]], vocab_size: int) -> Iterator[str]:
    """Yield the rules that readings break. Checking numbers together is faster."""
    for read, reading in pairs:
        if rule := broken_shape(read, reading, vocab_size):
            yield rule
    tables = [reading.logprobs for _, reading in pairs]
    rows = _join([table for table in tables if table.ndim == 1])
    for logprobs in (rows, *(table for table in tables if table.ndim > 1)):
        if logprobs.size and not (highest := logprobs.max()) <= ROUNDING:
            if np.isnan(highest):
                raise _nan(pairs)
            yield f"log-probabilities must be at most 0, not {highest}"
    targets, answered = _targets(pairs)
    if (_join(targets) != _join(answered)).any():
        yield "token_ids must be the targets that were asked for"
    if not are_within(_join([reading.token_ids.ravel() for _, reading in pairs]), vocab_size):
        yield f"token_ids must be in 0..{vocab_size - 1}"
    yield from _broken_draws(pairs)


def _targets(pairs: Sequence[tuple[Read, Reading]]) -> tuple[list[Ids], list[Ids]]:
    """Return the tokens that reads ask for by name, and those answered."""
    targets, answered = [], []
    for read, reading in pairs:
        if isinstance(read.readout, TokenLogProbs):
            targets.append(read.readout.targets)
            answered.append(reading.token_ids)
        elif isinstance(read.readout, TopLogProbs):
            first = reading.token_ids.shape[1] - read.readout.num_named
            targets.append(read.readout.named(len(read.positions)).ravel())
            answered.append(reading.token_ids[:, first:].ravel())
    return targets, answered


def _broken_draws(pairs: Sequence[tuple[Read, Reading]]) -> Iterator[str]:
    confidences = [reading.confidences for read, reading in pairs if has_confidences(read.readout)]
    if np.isnan(_join(confidences)).any():
        yield "confidences must be numbers"
    drawn = [
        (read.readout, reading) for read, reading in pairs if isinstance(read.readout, Candidates)
    ]
    for forbidden in {readout.forbidden for readout, _ in drawn}:
        ids = _join(
            [reading.token_ids for readout, reading in drawn if readout.forbidden == forbidden]
        )
        if len(refused := ids[np.isin(ids, forbidden)]):
            yield f"the candidate {refused[0]} is forbidden, as the mask always is"


def broken_shape(
    read: Read, reading: object, vocab_size: int, *, is_exact: bool = False
) -> str | None:
    """Return how an answer's types or shapes are not those of Reading; None if they are.
    is_exact: whether a dtype must be the one that Reading names, rather than of its kind.
    """
    if not isinstance(reading, Reading):
        return f"read must return Readings, not {reading!r:.80}"
    shape = read.answer_shape(vocab_size)
    fields = [
        ("token_ids", np.dtype(np.int64), "iu", shape),
        ("logprobs", np.dtype(np.float32), "f", shape),
    ]
    if has_confidences(read.readout):
        fields.append(("confidences", np.dtype(np.float64), "f", shape[:1]))
    for name, dtype, kinds, lengths in fields:
        value = getattr(reading, name)
        if isinstance(value, np.ndarray):
            is_of_type = value.dtype == dtype if is_exact else value.dtype.kind in kinds
            if is_of_type and value.shape == lengths:
                continue
            found = f"{value.dtype} {list(value.shape)}"
        else:
            found = type(value).__name__
        return (
            f"Reading.{name} of {type(read.readout).__name__} must be a numpy array, {dtype} "
            f"{list(lengths)} where vocab_size is {vocab_size}, not {found}"
        )
    return None if 0 <= reading.share <= 1 else f"share must be in 0..1, not {reading.share}"


def _join(arrays: Sequence[NDArray[Number]]) -> NDArray[Number]:
    return np.concatenate(arrays) if arrays else np.array(arrays)


def _nan(pairs: Sequence[tuple[Read, Reading]]) -> ModelOutputError:
    read, reading = next(pair for pair in pairs if np.isnan(pair[1].logprobs).any())
    per_position = np.isnan(reading.logprobs).reshape(len(read.positions), -1).any(axis=1)
    position = int(read.positions[int(np.argmax(per_position))])
    return ModelOutputError(
        f"the model's logits at position {position} hold NaN or infinity; check its "
        "weights, or load it with dtype float32"
    )
