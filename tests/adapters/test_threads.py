"""As many threads as the largest model keeps busy, unless somebody else has chosen."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROCESS = """
from dise_core.threads import choose_threads
assert choose_threads()
import torch
from dise_adapters.local.threads import Threads
threads, seen = Threads(), []
torch.set_num_threads(6)  # this process has six cores, as far as torch knows
for size in {sizes}:
    if size is None:
        torch.set_num_threads(5)
        continue
    threads.fit(size)
    seen.append(torch.get_num_threads())
print(seen)
"""


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([0, 599_999, 600_000, 950_000, 100_000, 10**9], [1, 1, 2, 3, 3, 6]),
        ([950_000, None, 100_000, 10**9], [3, 5, 5]),
    ],
)
def test_a_thread_for_300_000_parameters_of_the_largest_model_unless_a_user_chooses_later(
    sizes: list[int | None], expected: list[int]
) -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MKL_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", PROCESS.format(sizes=sizes)], env=environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(expected)
