"""What tests answer Reads with."""

from collections.abc import Callable, Sequence

import numpy as np

from dise_core import Read, Reading


class Recorded:
    """Answers Reads by a function, and keeps them."""

    def __init__(self, answer: Callable[[Sequence[Read]], list[Reading]]) -> None:
        self._answer = answer
        self.reads: list[Read] = []
        self.num_texts = 0
        """Different texts, each counted at every call that read it."""

    def __call__(self, reads: Sequence[Read]) -> list[Reading]:
        self.reads.extend(reads)
        self.num_texts += len({read.token_ids.tobytes() for read in reads})
        return self._answer(reads)


def one_nat_each(reads: Sequence[Read]) -> list[Reading]:
    """Give every token a log-probability of -1."""
    return [Reading(r.readout.targets, np.full(len(r.positions), -1, np.float32)) for r in reads]  # type: ignore[union-attr]
