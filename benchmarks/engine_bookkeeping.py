"""Measure what the engine itself costs: the time of a step less that of its forward pass, for each
sequence.

python benchmarks/engine_bookkeeping.py [--rounds 5]

Runs 64 generations of the embedded model at once. The forward pass is the model's body and head
with the readout's tensors; all else is the engine's, the plans' and the reader's own work in
Python.
"""

from __future__ import annotations

import statistics
from typing import Any

from command import Parser, head, row
from settled import settled
from stopwatch import Stopwatch

from dise_app.terminal.memory import keep_freed_memory
from dise_core import LLM, SamplingParams

AT_ONCE = 64


def main() -> None:
    """Print a row for each round."""
    parser = Parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.options(rounds=1).rounds
    keep_freed_memory()
    llm = settled(LLM("countdown", max_num_seqs=AT_ONCE))
    predictor: Any = llm.predictor
    step, read = Stopwatch(llm.engine.step), Stopwatch(predictor.read)
    body = Stopwatch(predictor._reader._body)
    answers = Stopwatch(predictor._reader._head)
    llm.engine.step, predictor.read = step, read  # type: ignore[method-assign]
    predictor._reader._body, predictor._reader._head = body, answers
    params = SamplingParams(max_tokens=48, block_length=16, tokens_per_step=1)
    prompts = [f"{n + 1},{n % 7 + 2},{n % 13 + 5} -> {n + 3}" for n in range(AT_ONCE)]
    llm.generate(prompts, params)
    head("steps", "step, ms", "in the model's read, ms", "in body and head, ms",
         "outside the read, µs a sequence")  # fmt: skip
    costs = []
    for _ in range(rounds):
        for watch in (step, read, body, answers):
            watch.seconds, watch.calls = 0.0, 0
        llm.generate(prompts, params)
        total, reading = step.seconds / step.calls, read.seconds / step.calls
        forward = (body.seconds + answers.seconds) / step.calls
        costs.append((total - forward) / AT_ONCE * 1e6)
        outside = (total - reading) / AT_ONCE * 1e6
        times = [f"{seconds * 1e3:.2f}" for seconds in (total, reading, forward)]
        row(step.calls, *times, f"{outside:.1f}")
    print(
        f"\nstep less body and head: median {statistics.median(costs):.1f} µs a sequence and step"
    )


if __name__ == "__main__":
    main()
