"""DiSE beside the Monte Carlo likelihood of 32 samples: forward passes and time for the same
answers.

python benchmarks/monte_carlo.py [--rounds 5]

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
from command import Parser, head, row
from settled import settled
from side_by_side import ratios, spread, take_turns

from dise_app.terminal.memory import keep_freed_memory
from dise_core import LLM, SamplingParams, ScoringParams

SCORERS = {
    "dise": ScoringParams(selector="response", logprobs=None),
    "mc": ScoringParams(
        scorer="mc", scorer_settings={"num_samples": 32}, selector="response", logprobs=None
    ),
}


def compare(
    name: str, llm: LLM, prompts: list[list[int]], responses: list[list[int]], rounds: int
) -> None:
    """Print a row of the table."""
    ways = {
        scorer: (lambda params=params: llm.score(prompts, responses, params))
        for scorer, params in SCORERS.items()
    }
    times, answers = take_turns(ways, rounds)
    passes = [
        float(np.mean([answer.usage.nfe for answer in answers[scorer]])) for scorer in SCORERS
    ]
    milliseconds = [statistics.median(times[scorer]) / len(prompts) * 1e3 for scorer in SCORERS]
    gain = spread(ratios(times, "mc", "dise"))
    row(
        name,
        f"{passes[0]:.1f}",
        f"{milliseconds[0]:.2f}",
        f"{passes[1]:.1f}",
        f"{milliseconds[1]:.1f}",
        gain,
    )


def main() -> None:
    """Print a row for each model."""
    parser = Parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--answers", type=int, default=64, help="a quarter as many random")
    args = parser.options(rounds=1, answers=2)
    keep_freed_memory()
    head("model", "DiSE: passes", "ms an answer", "Monte Carlo, 32: passes", "ms an answer",
         "ratio, median (range)")  # fmt: skip
    llm = settled(LLM("countdown"))
    questions = [f"{n + 1},{n % 7 + 2},{n % 13 + 5} -> {n + 3}" for n in range(args.answers)]
    written = llm.generate(questions, SamplingParams(max_tokens=48, block_length=16))
    prompts = [list(answer.prompt_token_ids) for answer in written]
    responses = [list(answer.outputs[0].token_ids) for answer in written]
    compare("countdown", llm, prompts, responses, args.rounds)
    with tempfile.TemporaryDirectory() as folder:
        llm = settled(LLM(str(random_llada.write(Path(folder), 8192, *SHAPES[10], max_length=512))))
    texts = np.random.default_rng(0).integers(0, 8190, (max(args.answers // 4, 1), 96)).tolist()
    halves = [ids[:32] for ids in texts], [ids[32:] for ids in texts]
    compare("random, 10 M", llm, *halves, args.rounds)


if __name__ == "__main__":
    main()
