"""How many threads a model is large enough to use."""

from dataclasses import dataclass

import torch

from dise_core.threads import choose_threads

PARAMETERS_A_THREAD = 300_000
"""Measured: a second thread does not pay off with 0.3 million parameters, with 0.6 million it does.
"""


def num_threads(num_parameters: int, most: int) -> int:
    """Return one thread per 300,000 parameters, at least 1 and at most `most`."""
    return max(1, min(most, num_parameters // PARAMETERS_A_THREAD))


@dataclass(slots=True)
class Threads:
    """The number of torch's threads in this process: as many as its largest model can use."""

    most: int = 0
    chosen: int = 0

    def fit(self, num_parameters: int) -> None:
        """Raise torch's number of threads to suit one more model, unless it was set elsewhere."""
        if not choose_threads() or (self.chosen and torch.get_num_threads() != self.chosen):
            return
        self.most = self.most or torch.get_num_threads()
        self.chosen = max(self.chosen, num_threads(num_parameters, self.most))
        torch.set_num_threads(self.chosen)


THREADS = Threads()
"""This process's threads."""
