"""How well the length of a gap is found, and the gap filled.

python benchmarks/gaps.py [--model countdown] [--dataset countdown-short] [--data FILE]

Of each right answer that the model itself wrote, a span of L* tokens is blanked out. L* is drawn
from 1 to --longest, or to the answer's length, and so is its place. The suffix is the answer's rest
and an end token. cal and lr-length choose up to --most tokens; "cal, B = 1" compares phi as it is.
Exact: the gap holds the tokens that were blanked out. In brackets 95 % intervals, by bootstrap over
gaps.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from command import Parser, head, row

from dise_core import LLM, SamplingParams
from dise_core.arrays import Floats
from dise_eval.datasets.questions import load
from dise_eval.statistics.resampling import mean

FOUND: dict[str, dict[str, Any]] = {
    "cal": {},
    "cal, B = 1": {"background": (0, 0, 0, 0, 1)},
    "lr-length": {},
}
"""Length controllers with their settings."""


class Gap(NamedTuple):
    """What stands before a gap, in it, and behind it, as token ids."""

    prefix: list[int]
    blanked: list[int]
    suffix: list[int]


def gaps(llm: LLM, args: argparse.Namespace) -> list[Gap]:
    """Return a gap in each right answer to the problems."""
    problems, special = load(args.dataset, args.data, args.problems, 0), llm.predictor.info.special
    params = SamplingParams(max_tokens=args.max_tokens, tokens_per_step=1, logprobs=None)
    answers = llm.generate([item.prompt for item in problems.items], params)
    random, drawn = np.random.default_rng(0), []
    for item, answer in zip(problems.items, answers, strict=True):
        output = answer.outputs[0]
        if not problems.graded(item, output.text, "robust")["is_correct"]:
            continue
        ids = np.array(output.token_ids)
        ids = ids[~special.is_end(ids)].tolist()
        length = int(random.integers(1, min(args.longest, len(ids)) + 1))
        start = int(random.integers(0, len(ids) - length + 1))
        stop, prompt = start + length, list(answer.prompt_token_ids)
        ends = sorted(special.eos_ids)[:1]
        drawn.append(Gap(prompt + ids[:start], ids[start:stop], ids[stop:] + ends))
    return drawn


def measured(llm: LLM, drawn: list[Gap], settings: list[SamplingParams]) -> list[Floats]:
    """Return whether each length is right, how far off it is, whether the gap is filled exactly,
    and the passes, float64 [G] each.
    """
    prefixes, _, suffixes = zip(*drawn, strict=True)
    answers = llm.fill(list(prefixes), list(suffixes), settings)
    filled = [list(answer.outputs[0].token_ids) for answer in answers]
    rows = [
        (len(ids) == len(gap.blanked), abs(len(ids) - len(gap.blanked)), ids == gap.blanked,
         answer.usage.nfe)
        for ids, gap, answer in zip(filled, drawn, answers, strict=True)
    ]  # fmt: skip
    return list(np.array(rows, np.float64).T)


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--model", default="countdown")
    parser.add_argument("--dataset", default="countdown-short")
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    parser.add_argument("--problems", type=int, default=256)
    parser.add_argument("--max-tokens", type=int, default=48, help="of the answers")
    parser.add_argument("--longest", type=int, default=12)
    parser.add_argument("--most", type=int, default=16)
    parser.add_argument("--fixed", type=int, action="append")
    args = parser.options(problems=8, fixed=[4])
    llm = LLM(args.model)
    drawn = gaps(llm, args)
    shared: dict[str, Any] = {"tokens_per_step": 1, "logprobs": None, "seed": 0}
    ways = {
        "fixed, L* given": [SamplingParams(max_tokens=len(gap.blanked), **shared) for gap in drawn]
    }
    for length in args.fixed or (4, 8):
        ways[f"fixed {length}"] = [SamplingParams(max_tokens=length, **shared)] * len(drawn)
    for name, settings in FOUND.items():
        params = SamplingParams(
            max_tokens=args.most, length=name.split(",")[0], length_settings=settings, **shared
        )
        ways[name] = [params] * len(drawn)
    lengths = [len(gap.blanked) for gap in drawn]
    print(f"{len(drawn)} gaps of {min(lengths)} to {max(lengths)} tokens\n")
    head("length", "L = L*", "abs(L - L*)", "filled exactly", "passes")
    for name, params in ways.items():
        is_right, off, is_exact, passes = measured(llm, drawn, params)
        found, exact = mean(100 * is_right, True), mean(100 * is_exact, True)
        row(
            name,
            f"{found.value:.1f}% [{found.low:.1f}, {found.high:.1f}]",
            f"{off.mean():.2f}",
            f"{exact.value:.1f}% [{exact.low:.1f}, {exact.high:.1f}]",
            f"{passes.mean():.1f}",
        )


if __name__ == "__main__":
    main()
