"""Compare length controllers on the embedded model, for base lengths in which the answer does not
always fit.

python examples/countdown_model/compare_lengths.py --problems countdown_cd3_test.jsonl
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from evaluate import read_problems
from problems import Problem, is_correct

from dise_core import LLM, SamplingParams

BASE_LENGTHS = (16, 24, 32)
MAX_ITERATIONS = 10


def controllers(base: int) -> list[tuple[str, int, str, dict[str, Any]]]:
    """Return what is compared at a base length: (label, max_tokens, controller, its settings)."""
    return [
        (f"fixed, {base}", base, "fixed", {}),
        (f"fixed, {base + MAX_ITERATIONS}", base + MAX_ITERATIONS, "fixed", {}),
        *(
            (
                f"dise-flexible from {base}, K = {k}",
                base,
                "dise-flexible",
                {"patience": k, "max_iterations": MAX_ITERATIONS},
            )
            for k in (2, 3, 4)
        ),
        (f"daedal from {base}", base, "daedal", {}),
    ]


def compare(llm: LLM, problems: Sequence[Problem], selector: str) -> None:
    """Print a row of the table for each controller and base length."""
    print(f"score over {selector}, 2 tokens a step, blocks of 16, temperature 0\n")
    print("| length | solved | NFE | ms per problem | tokens |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for base in BASE_LENGTHS:
        for label, max_tokens, controller, settings in controllers(base):
            params = SamplingParams(
                max_tokens=max_tokens,
                block_length=16,
                length=controller,
                length_settings=settings,
                selector=selector,
            )
            started = time.perf_counter()
            answers = llm.generate([problem.prompt for problem in problems], params)
            seconds = time.perf_counter() - started
            solved = np.mean(
                [is_correct(a.outputs[0].text, p) for a, p in zip(answers, problems, strict=True)]
            )
            nfe = np.mean([answer.usage.nfe for answer in answers])
            tokens = np.mean([len(answer.outputs[0].token_ids) for answer in answers])
            print(
                f"| {label} | {solved:.1%} | {nfe:.1f} | {seconds / len(problems) * 1e3:.0f} | "
                f"{tokens:.1f} |",
                flush=True,
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=Path)
    parser.add_argument("--model", default="countdown")
    parser.add_argument("--selector", default="last-10")
    args = parser.parse_args()
    compare(LLM(args.model), read_problems(args.problems), args.selector)


if __name__ == "__main__":
    main()
