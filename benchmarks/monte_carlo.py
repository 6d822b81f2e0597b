"""DiSE beside the Monte Carlo likelihood of 32 samples: forward passes and time for the same
answers.

python benchmarks/monte_carlo.py

64 answers of 48 tokens by the embedded model, and 16 texts of 64 under a random model of 10 million
parameters.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
import random_llada
from against_naive import SHAPES
from side_by_side import ratios, spread, take_turns

from dise_app.cli.memory import keep_freed_memory, settled
from dise_core import LLM, SamplingParams, ScoringParams

ROUNDS = 5
SCORERS = {
    "dise": ScoringParams(selector="response", logprobs=None),
    "mc": ScoringParams(
        scorer="mc", scorer_settings={"num_samples": 32}, selector="response", logprobs=None
    ),
}


def compare(name: str, llm: LLM, prompts: list[list[int]], responses: list[list[int]]) -> None:
    """Print a row of the table."""
    ways = {
        scorer: (lambda params=params: llm.score(prompts, responses, params))
        for scorer, params in SCORERS.items()
    }
    times, answers = take_turns(ways, ROUNDS)
    passes = [
        float(np.mean([answer.usage.nfe for answer in answers[scorer]])) for scorer in SCORERS
    ]
    each = [statistics.median(times[scorer]) / len(prompts) * 1e3 for scorer in SCORERS]
    gain = spread(ratios(times, "mc", "dise"))
    print(
        f"| {name} | {passes[0]:.1f} | {each[0]:.2f} | {passes[1]:.1f} | {each[1]:.1f} | {gain} |",
        flush=True,
    )


def main() -> None:
    """Print a row for each model."""
    keep_freed_memory()
    print(
        "| model | DiSE: passes | ms an answer | Monte Carlo, 32: passes | ms an answer | ratio, "
        "median (range) |"
    )
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    llm = settled(LLM("countdown"))
    questions = [f"{n + 1},{n % 7 + 2},{n % 13 + 5} -> {n + 3}" for n in range(64)]
    written = llm.generate(questions, SamplingParams(max_tokens=48, block_length=16))
    prompts = [list(answer.prompt_token_ids) for answer in written]
    compare("countdown", llm, prompts, [list(answer.outputs[0].token_ids) for answer in written])
    with tempfile.TemporaryDirectory() as folder:
        llm = settled(LLM(str(random_llada.write(Path(folder), 8192, *SHAPES[10], max_length=512))))
    texts = np.random.default_rng(0).integers(0, 8190, (16, 96)).tolist()
    compare("random, 10 M", llm, [ids[:32] for ids in texts], [ids[32:] for ids in texts])


if __name__ == "__main__":
    main()
