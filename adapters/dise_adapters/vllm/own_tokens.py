"""Reads of an auto-regressive model on vLLM, which answers only with the log-probabilities of a
text's own tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dise_core.errors import InputError
from dise_core.reading import Read, Reading, TokenLogProbs
from dise_core.rows import distinct_rows

OwnLogProbs = Sequence[float]
"""The log-probability of each token of a text but the first, given those before it."""


def read_own_tokens(
    reads: Sequence[Read], ask: Callable[[list[list[int]]], Iterable[OwnLogProbs]]
) -> list[Reading]:
    """Return the answers in the order of the reads; `ask` gets the texts. Raises InputError for
    anything but a text's own tokens, and for position 0.
    """
    for read in reads:
        _check(read)
    rows = distinct_rows(reads)
    readings: dict[int, Reading] = {}
    for row, found in zip(rows, ask([row.token_ids.tolist() for row in rows]), strict=True):
        logprobs = np.array([np.nan, *found], dtype=np.float32)
        for index in row.reads:
            positions = reads[index].positions
            readings[index] = Reading(row.token_ids[positions], logprobs[positions])
    return [readings[index] for index in range(len(reads))]


def _check(read: Read) -> None:
    if (
        not isinstance(read.readout, TokenLogProbs)
        or (read.readout.targets != read.token_ids[read.positions]).any()
    ):
        raise InputError(
            "a judge on vLLM tells the log-probabilities of a text's own tokens, nothing else",
            "logprobs",
        )
    if len(read.positions) and read.positions.min() == 0:
        raise InputError(
            "an auto-regressive model has no answer for the first token of a text; give a prompt",
            "prompt",
        )
