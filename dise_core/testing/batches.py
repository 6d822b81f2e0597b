"""The same answers again, in any order of positions, in any batch, up to the longest text."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dise_core.arrays import Ids
from dise_core.models.predictor import MaskPredictor
from dise_core.plans.reading import Read, Reading
from dise_core.plans.readouts import Candidates, Distribution, Readout, TokenLogProbs, TopLogProbs
from dise_core.testing.answers import answers, ask, check_answers
from dise_core.testing.promises import expect, gap_between

LONGEST = 4096
"""The tokens of the longest text that is read; tables of positions are seldom longer."""


def check_repeated(
    predictor: MaskPredictor, reads: Sequence[Read], alone: Sequence[Reading], tolerance: float
) -> None:
    """Check that Reads of one text are answered the same again, and position by position.
    alone: their answers.
    """
    for read, reading in zip(reads, alone, strict=True):
        [again] = ask(predictor, [read])
        difference = _difference(reading, again, tolerance)
        expect(
            not difference,
            f"a read must get the same answer each time: {difference}. Is dropout on, is "
            "something kept from the read before, or drawn by other than the Read's noise?",
        )
    order = np.roll(np.arange(len(reads[0].positions))[::-1], 1)
    for read, reading in zip(reads, alone, strict=True):
        turned = _turned(read, order)
        [other] = ask(predictor, [turned])
        expected = Reading(reading.token_ids[order], reading.logprobs[order])
        expect(
            not _difference(expected, other, tolerance),
            "answers must stand in the order of the Read's positions, which need not ascend: "
            f"for {turned.positions} they are not those for {read.positions} in that order. "
            "Are positions sorted?",
        )


def check_batch(
    predictor: MaskPredictor, reads: Sequence[Read], alone: Sequence[Reading], tolerance: float
) -> None:
    """Check that Reads, of texts whose lengths neither ascend nor descend, are answered
    together as each alone.
    """
    together = answers(predictor, reads)
    pairs = list(zip(alone, together, strict=True))
    is_moved = any(_difference(one, other, tolerance) for one, other in pairs) and all(
        any(not _difference(one, other, tolerance) for other in together) for one in alone
    )
    expect(
        not is_moved,
        "read must answer in the order of the reads: a batch gets the right answers in "
        "another order. Are texts sorted, by length say, and their answers not put back?",
    )
    check_answers(predictor, reads, together)
    for read, (one, other) in zip(reads, pairs, strict=True):
        if difference := _difference(one, other, tolerance):
            raise AssertionError(
                f"a read must be answered the same alone and in a batch: {difference}. "
                + _cause(predictor, read, one, tolerance)
            )


def check_longest(predictor: MaskPredictor) -> None:
    """Check that a text of max_length is answered, or of LONGEST if that is shorter."""
    info = predictor.info
    length = min(info.max_length, LONGEST)
    token = info.vocab_size // 2 if info.mask_token_id is None else info.mask_token_id
    readouts: tuple[Readout, ...] = (
        TokenLogProbs(np.array([0])), TopLogProbs(1), Candidates(), Distribution(),
    )  # fmt: skip
    readout = next(one for one in readouts if type(one) in predictor.readouts)
    read = Read(np.full(length, token), np.array([length - 1]), readout)
    try:
        [reading] = predictor.read([read])
    except Exception as error:
        raise AssertionError(
            f"a text of {length} tokens must be answered, as max_length is {info.max_length}: read "
            f"raised {type(error).__name__}: {error}. max_length must be at most the positions "
            "that the network has, less the tokens that the adapter adds"
        ) from error
    check_answers(predictor, [read], [reading])


def _difference(first: Reading, second: object, tolerance: float) -> str:
    """Return how an answer differs from a right one; "" if it does not."""
    if not isinstance(second, Reading) or np.shape(second.logprobs) != first.logprobs.shape:
        return f"the answer is {second!r:.80}"
    gap = gap_between(first.logprobs, second.logprobs)
    if gap > tolerance:
        return f"log-probabilities differ by {gap}"
    if not np.array_equal(first.token_ids, second.token_ids):
        return f"the tokens are {first.token_ids} and {second.token_ids}"
    return ""


def _turned(read: Read, order: Ids) -> Read:
    """Return the Read of its positions in another order, int64 [M]."""
    readout = read.readout
    if isinstance(readout, TokenLogProbs | TopLogProbs) and readout.targets is not None:
        readout = replace(readout, targets=readout.targets[order])
    return replace(read, positions=read.positions[order], readout=readout)


def _cause(predictor: MaskPredictor, read: Read, alone: Reading, tolerance: float) -> str:
    """Return what changes an answer in a batch: another text of the same length, or the
    padding beside a longer one.
    """
    [beside, _] = ask(predictor, [read, replace(read, token_ids=read.token_ids[::-1].copy())])
    if _difference(alone, beside, tolerance):
        return "Beside a text of the same length it differs too: do rows see each other?"
    return "Beside a text of the same length it does not: is padding attended to?"
