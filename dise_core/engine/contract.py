"""What plans and predictors promise: Reads that the model can run, and answers that fit
them. What breaks it fails only the requests that asked. The engine calls this, and so do
the kits.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dise_core.arrays import Ids
from dise_core.errors import (
    DiseError,
    InputError,
    ModelError,
    ModelOutputError,
    PlanError,
    TooLongError,
    error_line,
    shown,
)
from dise_core.interrupts import interrupt_in
from dise_core.models.completion import check_abilities
from dise_core.models.predictor import MaskPredictor
from dise_core.plans.reading import Read, Reading
from dise_core.plans.readouts import (
    READOUTS,
    Candidates,
    TokenLogProbs,
    TopLogProbs,
    has_confidences,
    named_ids,
)
from dise_core.plans.rows import Row
from dise_core.sequence import are_within, check_token_ids

MAX_EMPTY_QUESTIONS = 1000
"""Empty lists in a row that a plan may yield before it fails."""

Number = TypeVar("Number", np.int64, np.float32, np.float64)

ROUNDING = 1e-3
"""How far above 0 a log-probability may come out, in nats."""


def failure(error: BaseException) -> DiseError:
    """Return what a plan or a predictor raised, as a PlanError where it is no error of
    ours.

    A plugin may raise anything, SystemExit too, and ends its own request by it. Only
    Ctrl-C goes on.
    """
    if isinstance(error, DiseError):
        return error
    if interrupt := interrupt_in(error):
        raise interrupt
    explained = PlanError(f"{error_line(error):.500}")
    explained.__cause__ = error
    return explained


@contextmanager
def named(predictor: MaskPredictor) -> Iterator[None]:
    """Raise what an adapter raises, and is no error of ours, as a PlanError that names it."""
    try:
        yield
    except DiseError:
        raise
    except BaseException as error:
        if interrupt := interrupt_in(error):
            raise interrupt from None
        cls, line = type(predictor), error_line(error)
        raise PlanError(f"adapter {cls.__qualname__} of {cls.__module__}: {line:.500}") from error


def are_valid(predictors: Mapping[str, MaskPredictor], rows: Sequence[Row]) -> bool:
    """Whether all ids are in the vocabulary. Checking all takes as long as one."""
    try:
        texts = np.concatenate([row.token_ids for row in rows])
        return are_within(texts, predictors[rows[0].predictor].info.vocab_size)
    except Exception:  # Reads may hold anything: each is then looked at alone
        return False


def check_row(
    predictors: Mapping[str, MaskPredictor], row: Row, reads: Sequence[Read], is_valid: bool
) -> None:
    """Raise an error unless the model can run the row. is_valid: its ids are."""
    if row.predictor not in predictors:
        loaded = ", ".join(sorted(predictors))
        raise PlanError(f"no predictor {row.predictor!r} is loaded. Loaded: {loaded}")
    predictor = predictors[row.predictor]
    info, num_tokens = predictor.info, len(row.token_ids)
    if num_tokens == 0:
        raise InputError("the text is empty: it needs at least one token")
    if num_tokens > info.max_length:
        raise TooLongError(
            f"a text of {num_tokens} tokens is longer than the model's limit of {info.max_length}"
        )
    guided = row.guidance and (row.guidance.token_ids, row.guidance.context_ids)
    for ids in (None if is_valid else row.token_ids, row.context_ids, *(guided or ())):
        if ids is not None:
            check_token_ids(ids, info.vocab_size)
    if predictor.readouts is not READOUTS:
        _check_readouts(predictor, reads)
    for read in reads:
        check_abilities(read, info, predictor.abilities)
        for ids in named_ids(read.readout):
            check_token_ids(ids, info.vocab_size)


def _check_readouts(predictor: MaskPredictor, reads: Sequence[Read]) -> None:
    for kind in {type(read.readout) for read in reads} - predictor.readouts:
        names = ", ".join(sorted(each.__name__ for each in predictor.readouts))
        raise InputError(
            f"{predictor.info.name!r:.80} does not answer {kind.__name__}, which this "
            f"request needs; its adapter answers {names or 'nothing'}"
        )


def answers_of(predictor: MaskPredictor, name: str, reads: Sequence[Read]) -> Sequence[Reading]:
    """Return as many answers as there are Reads, each still to be checked."""
    with named(predictor):
        readings: object = predictor.read(reads)
    if not isinstance(readings, Sequence):
        raise ModelError(
            f"predictor {name!r} must answer a list of Readings, not {shown(readings)}"
        )
    if len(readings) != len(reads):
        raise ModelError(f"predictor {name!r} answered {len(readings)} of {len(reads)} reads")
    return readings


def bad_answer(
    predictor: MaskPredictor,
    name: str,
    reads: Sequence[Read],
    readings: Sequence[Reading],
    *,
    is_exact: bool = False,
) -> ModelError | None:
    """Return what is wrong with the readings, one for each read; None if nothing is.
    is_exact: whether a dtype must be the one that Reading names, rather than of its kind.

    ModelOutputError for NaN, with the position, and ModelError, which names the predictor
    and the rule, for an answer that is not a Reading of the read's shape, whose ids are
    outside the vocabulary, forbidden or not those asked for, or whose log-probabilities
    are above 0.
    """
    cause = None
    try:
        pairs = list(zip(reads, readings, strict=True))
        rule = next(_broken_rules(pairs, predictor.info.vocab_size, is_exact), None)
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


def _broken_rules(
    pairs: Sequence[tuple[Read, Reading]], vocab_size: int, is_exact: bool
) -> Iterator[str]:
    """Yield the rules that readings break. Checking numbers together is faster."""
    for read, reading in pairs:
        if rule := _broken_shape(read, reading, vocab_size, is_exact):
            yield rule
    tables = [reading.logprobs for _, reading in pairs]
    rows = _join([table for table in tables if table.ndim == 1])
    for logprobs in (rows, *(table for table in tables if table.ndim > 1)):
        if logprobs.size and not (highest := logprobs.max()) <= ROUNDING:
            if np.isnan(highest):
                raise _nan(pairs)
            yield (
                f"log-probabilities must be at most 0, not {highest}: logits become "
                "log-probabilities by log_softmax over the whole vocabulary"
            )
    targets, answered = _targets(pairs)
    if (_join(targets) != _join(answered)).any():
        yield (
            "the token_ids that answer TokenLogProbs must be its targets, and those of "
            "TopLogProbs must end with `ids`, then the position's target"
        )
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
            yield (
                "Candidates must heed forbidden: the candidate "
                f"{refused[0]} is forbidden, as the mask always is"
            )


def _broken_shape(read: Read, reading: object, vocab_size: int, is_exact: bool) -> str | None:
    """Return how an answer's types or shapes are not those of Reading; None if they are."""
    if not isinstance(reading, Reading):
        return f"read must return Readings, not {shown(reading)}"
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
