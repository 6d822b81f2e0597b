"""Types of the library's arrays, whose shapes docstrings give in brackets, and log-odds."""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
"""Token ids or positions."""

Mask = npt.NDArray[np.bool_]
"""Boolean masks over positions, True where a position is selected."""

Floats = npt.NDArray[np.float64]
"""Uniform random numbers, confidences, and intermediate log-probabilities."""

LogProbs = npt.NDArray[np.float32]
"""Natural logarithms of probabilities, in nats."""

Weights = Floats | None
"""What each token of a text counts in a mean, [N]; None where all count alike."""


def num_shared(first: Ids, second: Ids) -> int:
    """Return the number of equal tokens with which both texts begin, int64 [N] and [M]."""
    length = min(len(first), len(second))
    different = np.flatnonzero(first[:length] != second[:length])
    return int(different[0]) if len(different) else length


def log_odds(probabilities: Floats) -> Floats:
    """Return log(p / (1 - p)), which float32 resolves near 1; -inf for 0 and inf for 1."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities) - np.log1p(-probabilities)


def probabilities(log_odds: npt.NDArray[np.floating]) -> Floats:
    """Return the probabilities of log-odds, float64."""
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-log_odds.astype(np.float64)))
