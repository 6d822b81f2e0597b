"""How time and memory grow: with the requests at once, and with the length of a text.

python benchmarks/scaling.py [--rounds 5] [--output FOLDER]

Requests: the embedded model writes 48 tokens for 1 to 256 prompts at once. Lengths: a random model
of 10 million parameters scores one text of 64 to 2,048 tokens, every token of it, under a
vocabulary of 8,192. Linux only. --output writes a plot as scaling.png.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import random_llada
from against_naive import SHAPES
from command import Parser, head, row
from scoring_memory import memory
from settled import settled
from side_by_side import take_turns

from dise_app.terminal.memory import keep_freed_memory
from dise_core import LLM, SamplingParams, ScoringParams

VOCABULARY = 8192

Row = dict[str, Any]


def requests(counts: Sequence[int], rounds: int) -> list[Row]:
    """Print and return the time of so many requests at once, of which the first count is 1."""
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
    return [{"count": count, "seconds": seconds} for count, seconds in medians.items()]


def lengths(sizes: Sequence[int], rounds: int) -> list[Row]:
    """Print and return the time of scoring one text, and the memory above the weights."""
    with tempfile.TemporaryDirectory() as folder:
        model = random_llada.write(Path(folder), VOCABULARY, *SHAPES[10], max_length=sizes[-1])
        llm = settled(LLM(str(model)))
    random, params = np.random.default_rng(0), ScoringParams(selector="full")
    head("tokens", "seconds", "µs a token", "peak above the weights, MiB")
    rows, before = [], memory("VmRSS")
    for length in sizes:
        text = random.integers(0, VOCABULARY - 2, length).tolist()
        times, _ = take_turns({"score": lambda text=text: llm.score([[]], [text], params)}, rounds)
        seconds, peak = statistics.median(times["score"]), memory("VmHWM") - before
        rows.append({"length": length, "seconds": seconds, "mib": peak})
        row(length, f"{seconds:.3f}", f"{seconds / length * 1e6:.0f}", f"{peak:.0f}")
    return rows


def plot(by_count: list[Row], by_length: list[Row], path: Path) -> None:
    """Draw both tables."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    counts, sizes = [row["count"] for row in by_count], [row["length"] for row in by_length]
    each = [row["seconds"] / row["count"] * 1e3 for row in by_count]
    axes[0].plot(counts, each, "o-", color="#0072b2")
    axes[0].axhline(each[0], color="grey", linestyle=":", label="one by one")
    axes[0].set(
        title="Time of a request", xlabel="requests at once", ylabel="ms", ylim=0, xticks=counts
    )
    axes[1].plot(sizes, [row["seconds"] * 1e3 for row in by_length], "o-", color="#0072b2")
    axes[1].plot(
        sizes,
        [by_length[0]["seconds"] * 1e3 * n / sizes[0] for n in sizes],
        color="grey",
        linestyle=":",
        label="linear",
    )
    axes[1].set(
        title="Time of scoring one text", xlabel="tokens", ylabel="ms", yscale="log", xticks=sizes
    )
    axes[2].plot(sizes, [row["mib"] for row in by_length], "o-", color="#0072b2")
    axes[2].plot(
        sizes,
        [n * VOCABULARY * 8 / 2**20 for n in sizes],
        color="grey",
        linestyle=":",
        label="all logits, twice",
    )
    axes[2].set(
        title="Peak memory above the weights", xlabel="tokens", ylabel="MiB", ylim=0, xticks=sizes
    )
    for axis, ticks in zip(axes, (counts, sizes, sizes), strict=True):
        axis.set_xscale("log", base=2)
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.legend(frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=200)


def main() -> None:
    """Print both tables and write the files."""
    parser = Parser(__doc__)
    parser.add_argument("--requests", type=int, nargs="+", default=[2**n for n in range(9)])
    parser.add_argument("--lengths", type=int, nargs="+", default=[2**n for n in range(6, 12)])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    args = parser.options(requests=[1, 2], lengths=[64], rounds=1)
    keep_freed_memory()
    by_length = lengths(args.lengths, args.rounds)
    by_count = requests(args.requests, args.rounds)
    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)
        plot(by_count, by_length, args.output / "scaling.png")


if __name__ == "__main__":
    main()
