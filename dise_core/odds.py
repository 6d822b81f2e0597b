"""Probabilities as log-odds: float32 resolves them where probabilities near 1 all round to 1."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dise_core.arrays import Floats


def log_odds(probabilities: Floats) -> Floats:
    """Return log(p / (1 - p)); -inf for 0 and inf for 1."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities) - np.log1p(-probabilities)


def probabilities(log_odds: npt.NDArray[np.floating]) -> Floats:
    """Return the probabilities, float64."""
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-log_odds.astype(np.float64)))
