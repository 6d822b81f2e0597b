"""Reads of a model on a server which tells of a text's own tokens alone."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np

from dise_core import InputError, Read, Reader, Reading, TokenLogProbs
from dise_core.plans.rows import distinct_rows

OwnLogProbs = Sequence[float]
"""The log-probability of each token of a text; NaN where there is none."""


class OwnTokensReader(Reader):
    """Answers Reads of a text's own tokens."""

    @abstractmethod
    def ask(self, texts: list[list[int]]) -> Iterable[OwnLogProbs]:
        """Yield the log-probabilities of each text."""

    def check(self, read: Read) -> None:
        """Raise InputError for a Read that is not about what a judge tells."""
        tokens, readout = read.token_ids[read.positions], read.readout
        if not isinstance(readout, TokenLogProbs) or (readout.targets != tokens).any():
            raise InputError(
                "a judge on vLLM tells the log-probabilities of a text's own tokens, nothing else",
                "logprobs",
            )
        if (read.positions == 0).any():
            raise InputError(
                "an auto-regressive model has no answer for the first token of a text; give a "
                "prompt",
                "prompt",
            )

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        for read in reads:
            self.check(read)
        rows = distinct_rows(reads)
        readings: dict[int, Reading] = {}
        texts = [row.token_ids.tolist() for row in rows]
        for row, values in zip(rows, self.ask(texts), strict=True):
            logprobs = np.array(values, dtype=np.float32)
            for index in row.reads:
                positions = reads[index].positions
                readings[index] = Reading(row.token_ids[positions], logprobs[positions])
        return [readings[index] for index in range(len(reads))]
