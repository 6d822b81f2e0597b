"""A model that garbage collection passes over, as a server's does."""

import gc
from typing import TypeVar

T = TypeVar("T")


def settled(model: T) -> T:
    """Return the model, and spare all that exists from garbage collection."""
    gc.collect()
    gc.freeze()
    return model
