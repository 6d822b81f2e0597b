"""Shadow regeneration: each token as if it alone were masked, all in one pass."""

from dataclasses import replace
from typing import ClassVar

from dise_core import Ids, Read, TokenSequence
from dise_strategies.scorers.dise import DiSE


class Shadow(DiSE):
    """Mean log p(x_i | all but x_i) over the selected positions, in nats, by one shadow read.

    A mask token for each shares its position, sees all that the position may see but the
    token at it, and is itself seen by none; the other tokens' states have seen x_i. One
    forward pass of N + M tokens. Training: on masks is enough, though what the mask sees
    has seen the token that it hides, as in no training; pseudo-log-likelihood, which hides
    it from all, is `interleaved` with a large k. Source: WINO (arXiv 2507.18578),
    whose shadows of a block see each other; the two were measured 0.14 nats apart.
    """

    suits: ClassVar[str] = ""
    needs_masks: ClassVar[bool] = True

    def _read(self, sequence: TokenSequence, positions: Ids) -> Read:
        return replace(super()._read(sequence, positions), shadow=True)
