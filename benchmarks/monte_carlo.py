"""DiSE beside the Monte Carlo likelihood of 32 samples: forward passes and time for the same 64 answers.

python benchmarks/monte_carlo.py [--data countdown_cd3_test.jsonl]
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import numpy as np
from side_by_side import ratios, spread, take_turns

from dise_app.cli.memory import keep_freed_memory, settled
from dise_app.evaluation import questions
from dise_core import LLM, SamplingParams, ScoringParams

NUM_ANSWERS, ROUNDS = 64, 5
SCORERS = {
    "dise": ScoringParams(selector="response-text"),
    "mc, 32 samples": ScoringParams(scorer="mc", scorer_settings={"num_samples": 32}, selector="response-text"),
}


def main() -> None:
    """Print a row for each scorer, and the ratio of their times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    args = parser.parse_args()
    keep_freed_memory()
    llm = settled(LLM("countdown"))
    prompts = [item.prompt for item in questions.load("countdown-short", args.data).items[:NUM_ANSWERS]]
    texts = [answer.outputs[0].text for answer in llm.generate(prompts, SamplingParams(max_tokens=48, block_length=16))]
    ways = {name: (lambda params=params: llm.score(prompts, texts, params)) for name, params in SCORERS.items()}
    times, answers = take_turns(ways, ROUNDS)
    print("| scorer | passes an answer | ms an answer |")
    print("| --- | ---: | ---: |")
    for name, each in answers.items():
        passes = np.mean([answer.usage.nfe for answer in each])
        print(f"| {name} | {passes:.1f} | {statistics.median(times[name]) / NUM_ANSWERS * 1e3:.2f} |")
    print(f"\ndise is faster by {spread(ratios(times, *reversed(list(ways))))}")


if __name__ == "__main__":
    main()
