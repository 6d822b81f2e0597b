"""What a constraint adds to a denoising step: the same canvas written freely and under a schema of
20 fields, in turns.

python benchmarks/constrained_step.py [--size 100m] [--block-length 32]

The model has random weights and a vocabulary of 126,464 tokens, made up as in constraints.py. A
step's time is its median; `choosing` is the programme with its weights, on the CPU; what is left of
the difference is the larger readout.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from command import Parser, head, row
from constraints import EXPRESSIONS, Words
from random_checkpoints import RANDOM_100M, Size, write

from dise_core import LLM, SamplingParams
from dise_core.constraints.block import ValidBlock

SIZES = {"100m": replace(RANDOM_100M, vocabulary=126_464), "tiny": Size(32, 64, 1, 2, 600)}
OF_JSON = [b'{"', b'", "', b', "', b'": "', b'": ', b'"}', b"field", b"_0", b"_1", b"true", b"red"]
"""Words as other vocabularies have them."""

R = TypeVar("R")


class Lap:
    """The times of a function's calls, in milliseconds."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def around(self, function: Callable[..., R]) -> Callable[..., R]:
        """Return the function, timed."""

        def timed(*args: Any, **kwargs: Any) -> R:
            begun = time.perf_counter()
            answer = function(*args, **kwargs)
            self.times.append((time.perf_counter() - begun) * 1e3)
            return answer

        return timed

    @property
    def median(self) -> float:
        """The median, 0 of none."""
        return statistics.median(self.times) if self.times else 0.0


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--size", choices=SIZES, default="100m")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--block-length", type=int, default=32)
    parser.add_argument("--tokens-per-step", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--folder", type=Path, help="where the checkpoint is, or is to be written")
    args = parser.options(size="tiny", rounds=1, tokens_per_step=64)
    size = SIZES[args.size]
    folder = args.folder or Path(tempfile.mkdtemp())
    llm = LLM(write(folder, size, torch.float32, 2**30), max_num_seqs=1)
    words = llm.predictor.tokenizer = Words(size.vocabulary - 258)
    words.words[-len(OF_JSON) :] = OF_JSON
    free = SamplingParams(
        max_tokens=args.max_tokens, block_length=args.block_length, logprobs=None, seed=0,
        tokens_per_step=args.tokens_per_step, temperature=args.temperature,
    )  # fmt: skip
    regex = {"regex": EXPRESSIONS["20 fields of five types"]}
    bound = free.model_copy(update={"constraint": "regex", "constraint_settings": regex})
    llm.planner.prepare(bound)
    passes, choosing, read = (Lap(), Lap()), Lap(), llm.predictor.read
    ValidBlock.chosen = choosing.around(ValidBlock.chosen)  # type: ignore[method-assign]
    for _ in range(args.rounds):
        for lap, params in zip(passes, (free, bound), strict=True):
            llm.predictor.read = lap.around(read)  # type: ignore[method-assign]
            llm.generate([[1, 2, 3]], params)
    plain, larger, chosen = passes[0].median, passes[1].median, choosing.median
    head("step", "free, ms", "bound, ms", "of it choosing, ms", "first, ms", "added")
    step = larger + chosen
    row(f"blocks of {args.block_length}, at {args.temperature:g}", f"{plain:.1f}", f"{step:.1f}",
        f"{chosen:.1f}", f"{choosing.times[0]:.1f}", f"{step / plain - 1:.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
