"""Type aliases for the library's arrays. Docstrings give their shapes in brackets."""

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


def num_shared(one: Ids, other: Ids) -> int:
    """Return the number of equal tokens with which both texts begin, int64 [N] and [M]."""
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length
