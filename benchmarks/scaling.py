"""How time and memory grow: with the requests at once, and with the length of a text.

python benchmarks/scaling.py [--rounds 5]

Requests: the embedded model writes 48 tokens for 1 to 256 prompts at once. Lengths: a random model
of 10 million parameters scores one text of 64 to 2,048 tokens, every token of it, under a
vocabulary of 8,192. Linux only.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from command import Parser, head, resident, row, settled, take_turns
from random_checkpoints import SHAPES, dense, write

from dise_app.terminal.heap import keep_freed_memory
from dise_core import LLM, SamplingParams, ScoringParams

VOCABULARY = 8192


def requests(counts: Sequence[int], rounds: int) -> None:
    """Print the time of so many requests at once, of which the first count is 1."""
    llm = settled(LLM("countdown"))
    prompts = [f"{n % 97 + 1},{n % 7 + 2},{n % 13 + 5} -> {n % 50 + 3}" for n in range(counts[-1])]
    params = SamplingParams(max_tokens=48, block_length=16)
    ways = {
        str(count): (lambda count=count: llm.generate(prompts[:count], params)) for count in counts
    }
    times, _ = take_turns(ways, rounds)
    medians = {count: statistics.median(times[str(count)]) for count in counts}
    print()
    head("requests at once", "seconds", "ms a request", "of as many one by one")
    for count, seconds in medians.items():
        share = seconds / count / medians[1]
        row(count, f"{seconds:.3f}", f"{seconds / count * 1e3:.1f}", f"{share:.2f}")


def lengths(sizes: Sequence[int], rounds: int) -> None:
    """Print the time of scoring one text, and the memory above the weights."""
    with tempfile.TemporaryDirectory() as folder:
        llm = settled(LLM(str(write(Path(folder), dense(VOCABULARY, *SHAPES[10])))))
    random, params = np.random.default_rng(0), ScoringParams(selector="full")
    head("tokens", "seconds", "µs a token", "peak above the weights, MiB")
    before = resident("VmRSS")
    for length in sizes:
        text = random.integers(0, VOCABULARY - 2, length).tolist()
        times, _ = take_turns({"score": lambda text=text: llm.score([[]], [text], params)}, rounds)
        seconds, peak = statistics.median(times["score"]), resident("VmHWM") - before
        row(length, f"{seconds:.3f}", f"{seconds / length * 1e6:.0f}", f"{peak:.0f}")


def main() -> None:
    """Print both tables."""
    parser = Parser(__doc__)
    parser.add_argument("--requests", type=int, nargs="+", default=[2**n for n in range(9)])
    parser.add_argument("--lengths", type=int, nargs="+", default=[2**n for n in range(6, 12)])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.options(requests=[1, 2], lengths=[64], rounds=1)
    keep_freed_memory()
    lengths(args.lengths, args.rounds)
    requests(args.requests, args.rounds)


if __name__ == "__main__":
    main()
