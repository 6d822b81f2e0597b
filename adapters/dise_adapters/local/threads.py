"""How many threads a model is large enough to use."""

from dataclasses import dataclass

import torch

from dise_core.threads import choose_threads

PARAMETERS_A_THREAD = 300_000
"""Measured: a second thread does not pay off with 0.3 million parameters, with 0.6
million it does.
"""


@dataclass(slots=True)
class Threads:
    """The number of torch's threads: as many as the process's largest model can use."""

    limit: int = 0
    current: int = 0

    def fit(self, num_parameters: int) -> None:
        """Raise torch's threads to suit one more model, unless others set them."""
        if not choose_threads() or (self.current and torch.get_num_threads() != self.current):
            return
        self.limit = self.limit or torch.get_num_threads()
        useful = min(self.limit, num_parameters // PARAMETERS_A_THREAD)
        self.current = max(1, self.current, useful)
        torch.set_num_threads(self.current)


THREADS = Threads()
"""This process's threads."""
