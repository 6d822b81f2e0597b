"""The toy model, with end tokens made likelier or not."""

import numpy as np

from dise_core.arrays import Floats, Ids
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, MASK

PROMPT = [1, 2, 3]


class EndingModel(ToyPredictor):
    """Adds a bonus to the end token's logit, and never expects a mask."""

    def __init__(self, end_bonus: float, seed: int) -> None:
        super().__init__(max_length=80, seed=seed)
        self._end_bonus = end_bonus

    def logits(self, ids: Ids) -> Floats:
        logits = super().logits(ids)
        logits[:, END] += self._end_bonus
        logits[:, MASK] -= 20
        return logits

    def probabilities(self, response: list[int]) -> Floats:
        """Return the distributions behind PROMPT, float64 [R, V]."""
        logits = self.logits(np.array(PROMPT + response))[len(PROMPT) :]
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities: Floats = weights / weights.sum(axis=1, keepdims=True)
        return probabilities
