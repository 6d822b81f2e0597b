"""How many threads a model of some size keeps busy."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dise_core.threads import choose_threads

PARAMETERS_A_THREAD = 300_000
"""Measured with two threads: 0.3 million parameters do not repay the second, 0.6 million do."""


def num_threads(num_parameters: int, most: int) -> int:
    """Return one thread for each 300,000 parameters, at least one and at most `most`."""
    return max(1, min(most, num_parameters // PARAMETERS_A_THREAD))


@dataclass(slots=True)
class Threads:
    """Torch's threads in this process: as many as its largest model keeps busy."""

    most: int = 0
    chosen: int = 0

    def fit(self, num_parameters: int) -> None:
        """Set torch's number of threads for one more model; leave one that somebody else chose."""
        if not choose_threads() or (self.chosen and torch.get_num_threads() != self.chosen):
            return
        self.most = self.most or torch.get_num_threads()
        self.chosen = max(self.chosen, num_threads(num_parameters, self.most))
        torch.set_num_threads(self.chosen)


THREADS = Threads()
"""This process's."""
