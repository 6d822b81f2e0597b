"""The conformance check of logits processors."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dise_core import Floats, Ids, LogitsContext, LogitsProcessor
from dise_core.testing.promises import expect, kept
from dise_core.testing.toy_model import MASK, VOCAB_SIZE
from dise_core.writing.logits import FORBIDDEN, BoundProcessor


@kept()
def check_logits(processor: LogitsProcessor, as_rows: Callable[[Floats], Any] = np.array) -> None:
    """Check that the processor returns rows like those that it gets, without NaN and +inf,
    the same each time, each whatever rows come with it, with a token that may be written,
    and leaves the context unchanged.

    as_rows: makes new rows of logits, float64 [M, V]: `torch.tensor` for a processor that
    takes tensors alone.
    """
    for ids in ([3, 1, MASK, 4, MASK, MASK], [MASK], [2, 2, 2, 2, MASK, 2]):
        _check(processor, np.array(ids), as_rows)


def _check(processor: LogitsProcessor, text: Ids, as_rows: Callable[[Floats], Any]) -> None:
    positions = np.flatnonzero(text == MASK)
    rows = np.random.default_rng(0).normal(size=(len(positions), VOCAB_SIZE))
    context = LogitsContext(text.copy(), positions.copy(), MASK)
    bound = BoundProcessor(processor, context)
    together, again = (np.asarray(bound(as_rows(rows), slice(None))) for _ in range(2))
    expect(np.array_equal(together, again), "process must return the same for the same rows")
    for index in range(len(rows)):
        part = slice(index, index + 1)
        is_same = np.allclose(together[part], np.asarray(bound(as_rows(rows[part]), part)))
        expect(is_same, "process must change a row the same, whatever rows come with it")
    is_writable = (np.delete(together, MASK, axis=1) > FORBIDDEN).any(axis=1).all()
    expect(bool(is_writable), "process must leave a token that may be written at each position")
    pairs = (context.token_ids, text), (context.positions, positions)
    is_unchanged = all(np.array_equal(array, before) for array, before in pairs)
    expect(is_unchanged, "process must leave the context unchanged")
