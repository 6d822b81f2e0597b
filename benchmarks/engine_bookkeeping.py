"""Measure what the engine itself costs: the time of a step less that of its forward pass, for each
sequence.

python benchmarks/engine_bookkeeping.py

Runs 64 generations of the embedded model at once. The forward pass is the model's body and head
with the readout's tensors; all else is the engine's, the plans' and the reader's own work in
Python.
"""

from __future__ import annotations

import statistics
from typing import Any

from stopwatch import Stopwatch

from dise_app.cli.memory import keep_freed_memory, settled
from dise_core import LLM, SamplingParams

AT_ONCE = 64
ROUNDS = 5


def main() -> None:
    """Print a row for each round."""
    keep_freed_memory()
    llm = settled(LLM("countdown", max_num_seqs=AT_ONCE))
    predictor: Any = llm.predictor
    step, read = Stopwatch(llm.engine.step), Stopwatch(predictor.read)
    body = Stopwatch(predictor._reader._body)
    answers = Stopwatch(predictor._reader._logits)
    llm.engine.step, predictor.read = step, read  # type: ignore[method-assign]
    predictor._reader._body, predictor._reader._logits = body, answers
    params = SamplingParams(max_tokens=48, block_length=16, tokens_per_step=1)
    prompts = [f"{n + 1},{n % 7 + 2},{n % 13 + 5} -> {n + 3}" for n in range(AT_ONCE)]
    llm.generate(prompts, params)
    print(
        "| steps | step, ms | in the model's read, ms | in body and head, ms | outside the read, "
        "µs a sequence |"
    )
    print("| ---: | ---: | ---: | ---: | ---: |")
    costs = []
    for _ in range(ROUNDS):
        for watch in (step, read, body, answers):
            watch.seconds, watch.calls = 0.0, 0
        llm.generate(prompts, params)
        each = {
            name: watch.seconds / step.calls for name, watch in (("step", step), ("read", read))
        }
        forward = (body.seconds + answers.seconds) / step.calls
        costs.append((each["step"] - forward) / AT_ONCE * 1e6)
        outside = (each["step"] - each["read"]) / AT_ONCE * 1e6
        print(
            f"| {step.calls} | {each['step'] * 1e3:.2f} | {each['read'] * 1e3:.2f} | "
            f"{forward * 1e3:.2f} | {outside:.1f} |",
            flush=True,
        )
    print(
        f"\nstep less body and head: median {statistics.median(costs):.1f} µs a sequence and step"
    )


if __name__ == "__main__":
    main()
