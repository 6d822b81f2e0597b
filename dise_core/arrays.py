"""Names for the arrays that travel through the library. Shapes stand in brackets where they are
used.
"""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
"""Token ids or positions."""

Mask = npt.NDArray[np.bool_]
"""True where a position is meant."""

Floats = npt.NDArray[np.float64]
"""Uniform numbers, confidences, log-probabilities in computations."""

LogProbs = npt.NDArray[np.float32]
"""Natural logarithms of probabilities, in nats."""
