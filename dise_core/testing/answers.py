"""Asking a predictor as the conformance checks do: under the contract of the engine."""

from collections.abc import Iterator, Sequence

import numpy as np

from dise_core.arrays import Ids
from dise_core.engine.contract import answers_of, bad_answer
from dise_core.errors import InputError, ModelError
from dise_core.models.predictor import MaskPredictor
from dise_core.plans.reading import Read, Reading
from dise_core.plans.readouts import named_ids
from dise_core.testing.promises import expect


def ask(predictor: MaskPredictor, reads: Sequence[Read]) -> list[Reading]:
    """Return the answers to the Reads. Raises ModelError for answers that the engine
    refuses, or whose types are not the very ones that Reading names; AssertionError for
    an exception and for Reads that are overwritten; InputError for what the predictor
    refuses.
    """
    readings = answers(predictor, reads)
    check_answers(predictor, reads, readings)
    return readings


def answers(predictor: MaskPredictor, reads: Sequence[Read]) -> list[Reading]:
    """Return as many answers as there are Reads, not checked. Otherwise as ask."""
    before = [[(name, array.copy()) for name, array in _arrays(read)] for read in reads]
    try:
        readings = list(answers_of(predictor, "target", reads))
    except (InputError, ModelError):
        raise
    except Exception as error:
        longest = max(len(read.token_ids) for read in reads)
        highest = max(int(read.token_ids.max(initial=0)) for read in reads)
        raise AssertionError(
            f"read must answer all token ids below vocab_size, {predictor.info.vocab_size}: for "
            f"{longest} tokens with ids up to {highest} it raised an error: {error}"
        ) from error
    for read, arrays in zip(reads, before, strict=True):
        for (name, array), (_, old) in zip(_arrays(read), arrays, strict=True):
            expect(
                np.array_equal(array, old),
                f"read must leave the arrays of a Read unchanged, and overwrote its {name}: "
                "work on a copy",
            )
    return readings


def check_answers(
    predictor: MaskPredictor, reads: Sequence[Read], readings: Sequence[Reading]
) -> None:
    """Raise ModelError unless the answers keep the engine's contract to the very type."""
    if bad := bad_answer(predictor, "target", reads, readings, is_exact=True):
        raise bad


def _arrays(read: Read) -> Iterator[tuple[str, Ids]]:
    yield "token_ids", read.token_ids
    yield "positions", read.positions
    yield from (("readout's ids", ids) for ids in named_ids(read.readout))
    if read.context_ids is not None:
        yield "context_ids", read.context_ids
    if read.guidance is not None:
        yield "guidance's token_ids", read.guidance.token_ids
