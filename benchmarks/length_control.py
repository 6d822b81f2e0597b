"""Algorithm 1 beside a fixed length, as the paper reports it: patience 4, and the mean over several base lengths.

python benchmarks/length_control.py [--lengths 128 256 448] [--problems 8] [--cache none prefix dual] [--data FILE]

Real problems on the embedded model, 2 tokens a step, blocks of 32, scored over last-10. Its texts end at 512 tokens, so
the longest base length is 448 where the paper's is 512.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import ratios, spread, take_turns

from dise_app.cli.memory import keep_freed_memory, settled
from dise_app.evaluation import questions
from dise_core import LLM, SamplingParams

CACHES = ("none", "prefix", "dual")
WAYS: dict[str, dict[str, Any]] = {
    "fixed": {},
    "dise-flexible": {"length": "dise-flexible", "length_settings": {"patience": 4}},
}


def compare(llm: LLM, prompts: Sequence[str], base: int, caches: Sequence[str], rounds: int) -> dict[str, Any]:
    """Return seconds, NFE and computed passes of both ways with each cache, from one base length."""
    asked = {
        (way, cache): SamplingParams(max_tokens=base, cache=cache, **settings)  # type: ignore[arg-type]
        for cache in caches
        for way, settings in WAYS.items()
    }
    ways = {f"{way}, {cache}": (lambda p=params: llm.generate(prompts, p)) for (way, cache), params in asked.items()}
    times, answers = take_turns(ways, rounds)
    usages = {name: [answer.usage for answer in found] for name, found in answers.items()}
    return {
        "base": base,
        "times": times,
        "nfe": {name: float(np.mean([usage.nfe for usage in found])) for name, found in usages.items()},
        "computed": {name: float(np.mean([usage.nfe_computed for usage in found])) for name, found in usages.items()},
    }


def mean(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean over the base lengths, round by round."""
    names = found[0]["times"]
    return {
        "base": "mean",
        "times": {name: np.mean([each["times"][name] for each in found], axis=0).tolist() for name in names},
        **{
            count: {name: float(np.mean([each[count][name] for each in found])) for name in names}
            for count in ("nfe", "computed")
        },
    }


def show(row: dict[str, Any], caches: Sequence[str]) -> None:
    """Print a line for each cache."""
    for cache in caches:
        fixed, flexible = f"fixed, {cache}", f"dise-flexible, {cache}"
        seconds = [f"{statistics.median(row['times'][name]):.2f}" for name in (fixed, flexible)]
        against = [spread(ratios(row["times"], flexible, other)) for other in (f"fixed, {caches[0]}", fixed)]
        passes = [f"{row[count][name]:.1f}" for count in ("nfe", "computed") for name in (fixed, flexible)]
        print(f"| {' | '.join([str(row['base']), cache, *seconds, *against, *passes])} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 256, 448])
    parser.add_argument("--problems", type=int, default=8)
    parser.add_argument("--cache", nargs="+", choices=CACHES, default=list(CACHES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    keep_freed_memory()
    llm = settled(LLM("countdown"))
    prompts = [item.prompt for item in questions.load("countdown-short", args.data, args.problems).items]
    print(
        f"| base length | cache | fixed, s | flexible, s | of fixed, {args.cache[0]} | of fixed, same cache "
        "| NFE, fixed | flexible | computed, fixed | flexible |"
    )
    print("| ---: | --- | ---: | ---: | --- | --- | ---: | ---: | ---: | ---: |")
    rows = []
    for base in args.lengths:
        rows.append(compare(llm, prompts, base, args.cache, args.rounds))
        show(rows[-1], args.cache)
    show(mean(rows), args.cache)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
