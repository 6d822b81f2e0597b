"""What length controllers make of base lengths that do not fit the answer.

python benchmarks/lengths.py [--data countdown_cd3_test.jsonl] [--base-length 16 ...]

The right length L* of a problem is that of the shortest right answer to it in any row, without end
tokens; the lengths are compared where there is one. L is the length of the canvas that an answer
was written on, end tokens included: shorter than L* it cannot hold that answer, and what is longer
costs passes. For cal, lr-length and smart-crop the base is the longest length that they may choose;
the others start there. In brackets 95 % intervals, by bootstrap over problems, of the difference in
problems solved.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from command import Parser, head, row
from length_bias import right_lengths

from dise_core import LLM, RequestOutput, SamplingParams
from dise_core.arrays import Floats
from dise_eval.datasets.questions import ProblemSet, load
from dise_eval.statistics.resampling import mean

CONTROLLERS: dict[str, dict[str, Any]] = {
    "fixed": {},
    "dise-flexible": {},
    "daedal": {},
    "cal": {},
    "lr-length": {},
    "rho-eos": {},
    "rho-eos, tail": {"density": "tail"},
    "smart-crop": {},
    "smart-crop, tau 0.1": {"tau": 0.1},
}


def written(llm: LLM, problems: ProblemSet, params: SamplingParams) -> list[RequestOutput]:
    """Return an answer to each problem."""
    return llm.generate([item.prompt for item in problems.items], params)


def solved(problems: ProblemSet, answers: list[RequestOutput]) -> Floats:
    """Return 1 for each right answer and 0 for each other one, float64 [Q]."""
    graded = (
        problems.graded(item, answer.outputs[0].text, "robust")["is_correct"]
        for item, answer in zip(problems.items, answers, strict=True)
    )
    return np.array(list(graded), np.float64)


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--model", default="countdown")
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    parser.add_argument("--problems", type=int, default=128)
    parser.add_argument("--base-length", type=int, action="append")
    parser.add_argument("--block-length", type=int, default=16)
    parser.add_argument("--beside", choices=list(CONTROLLERS), default="daedal")
    args = parser.options(problems=4, base_length=[32])
    llm, problems = LLM(args.model), load("countdown-short", args.data, args.problems, 0)
    shared: dict[str, Any] = {"block_length": args.block_length, "logprobs": None, "seed": 0}
    runs = {
        (name, base): written(
            llm,
            problems,
            SamplingParams(
                max_tokens=base, length=name.split(",")[0], length_settings=settings, **shared
            ),
        )
        for base in args.base_length or (16, 24, 32, 128)
        for name, settings in CONTROLLERS.items()
    }
    lengths = right_lengths(llm, problems, list(runs.values()))
    numbers, right = list(lengths), np.array(list(lengths.values()))
    beside = f"beside {args.beside}"
    head("length", "solved", beside, "passes", "L", "abs(L - L*)", "L < L*", "L > 2 L*")
    for (name, base), answers in runs.items():
        is_right, others = solved(problems, answers), solved(problems, runs[args.beside, base])
        tokens = np.array([len(answer.outputs[0].token_ids) for answer in answers])
        gain, excess = mean(100 * (is_right - others), True), tokens[numbers] - right
        row(
            f"{name} from {base}",
            f"{is_right.mean():.1%}",
            f"{gain.value:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]",
            f"{np.mean([answer.usage.nfe for answer in answers]):.1f}",
            f"{tokens.mean():.1f}",
            f"{np.abs(excess).mean():.1f}",
            f"{np.mean(excess < 0):.1%}",
            f"{np.mean(excess > right):.1%}",
        )


if __name__ == "__main__":
    main()
