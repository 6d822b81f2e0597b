"""What the caches gain, and what they change: time, texts, decisions, scores and solved problems,
beside the exact way.

python benchmarks/cache.py problems [--data countdown_cd3_test.jsonl] [--json FILE] python
benchmarks/cache.py random [--size 100] [--length 128] [--cache none prefix dual] [--json FILE]

`problems`: the embedded model on Countdown. `random`: two prompts on a random model, where only
time means much.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import random_llada
from against_naive import SHAPES
from side_by_side import ratios, spread, take_turns

from dise_app.cli.memory import keep_freed_memory, settled
from dise_app.evaluation import questions
from dise_core import LLM, RequestOutput, SamplingParams

CACHES = ("none", "prefix", "dual")
PATIENCE = {"patience": 4}
VOCABULARY, PROMPT_LENGTHS = 8192, (24, 56)

WAYS: dict[str, dict[str, Any]] = {
    "fixed 48, blocks of 16": {"max_tokens": 48, "block_length": 16},
    "the same, threshold 0.9": {"max_tokens": 48, "block_length": 16, "unmasking": "threshold"},
    "the same, factor 1.0": {"max_tokens": 48, "block_length": 16, "unmasking": "factor"},
    "dise-flexible from 32, blocks of 16": {
        "max_tokens": 32,
        "block_length": 16,
        "length": "dise-flexible",
    },
    "dise-flexible from 32, blocks of 32": {
        "max_tokens": 32,
        "block_length": 32,
        "length": "dise-flexible",
    },
    "fixed 128, blocks of 32": {"max_tokens": 128},
    "dise-flexible from 128, blocks of 32": {
        "max_tokens": 128,
        "length": "dise-flexible",
        "length_settings": PATIENCE,
    },
}


def agreement(answers: Sequence[RequestOutput], exact: Sequence[RequestOutput]) -> dict[str, float]:
    """Return how many texts, and how many decisions on length, are those of the exact way, and how
    far scores are apart.
    """
    pairs = [(one.outputs[0], other.outputs[0]) for one, other in zip(answers, exact, strict=True)]
    decisions = [
        (len(one.trace), one.stopped_by, len(one.token_ids))
        == (len(other.trace), other.stopped_by, len(other.token_ids))
        for one, other in pairs
    ]
    return {
        "texts": float(np.mean([one.token_ids == other.token_ids for one, other in pairs])),
        "decisions": float(np.mean(decisions)),
        "score_difference": float(
            np.mean([abs(one.score.value - other.score.value) for one, other in pairs])
        ),
    }


def problems(path: Path | None) -> list[dict[str, Any]]:
    """Print what each cache solves, and how long it takes."""
    loaded = questions.load("countdown-short", path)
    prompts, llm, rows = [item.prompt for item in loaded.items], settled(LLM("countdown")), []
    llm.generate(prompts[:64], SamplingParams(max_tokens=48))
    print(
        "| | cache | solved | seconds | texts as exact | lengths as exact | mean difference of "
        "scores, nats |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for way, settings in WAYS.items():
        exact: list[RequestOutput] = []
        for cache in CACHES:
            started = time.perf_counter()
            answers = llm.generate(prompts, SamplingParams(cache=cache, **settings))
            seconds = time.perf_counter() - started
            exact = exact or answers
            graders = (loaded.dataset.grader(item, "robust") for item in loaded.items)
            solved = np.mean(
                [
                    g.grade(a.outputs[0].text).is_correct
                    for g, a in zip(graders, answers, strict=True)
                ]
            )
            row = {
                "way": way,
                "cache": cache,
                "solved": float(solved),
                "seconds": seconds,
                **agreement(answers, exact),
            }
            print(
                f"| {way} | {cache} | {solved:.1%} | {seconds:.1f} | {row['texts']:.1%} | "
                f"{row['decisions']:.1%} | "
                f"{row['score_difference']:.4f} |",
                flush=True,
            )
            rows.append(row)
    return rows


def random_model(
    size: int, length: int, caches: Sequence[str], rounds: int
) -> list[dict[str, Any]]:
    """Print the time of fixed length and of Algorithm 1 with each cache."""
    random = np.random.default_rng(0)
    prompts = [random.integers(0, VOCABULARY - 2, n).tolist() for n in PROMPT_LENGTHS]
    with tempfile.TemporaryDirectory() as folder:
        llm = settled(
            LLM(str(random_llada.write(Path(folder), VOCABULARY, *SHAPES[size], max_length=512)))
        )
    asked = {
        f"{name}, {cache}": SamplingParams(
            max_tokens=length, cache=cache, length=name, length_settings=settings
        )  # type: ignore[arg-type]
        for name, settings in (("fixed", {}), ("dise-flexible", PATIENCE))
        for cache in caches
    }
    ways = {
        name: (lambda params=params: llm.generate(prompts, params))
        for name, params in asked.items()
    }
    times, answers = take_turns(ways, rounds)
    print(
        f"random, {size} M parameters, from {length} tokens; medians of {rounds} rounds (range)\n"
    )
    print(
        "| length, cache | seconds | of fixed and exact | of fixed with this cache | NFE | "
        "computed | scores apart, nats |"
    )
    print("| --- | ---: | --- | --- | ---: | ---: | ---: |")
    rows = []
    for name, params in asked.items():
        apart = agreement(answers[name], answers[f"{params.length}, {caches[0]}"])[
            "score_difference"
        ]
        nfe = float(np.mean([answer.usage.nfe for answer in answers[name]]))
        computed = float(np.mean([answer.usage.nfe_computed for answer in answers[name]]))
        whole, same = (
            ratios(times, name, f"fixed, {cache}") for cache in (caches[0], params.cache)
        )
        seconds = statistics.median(times[name])
        print(
            f"| {name} | {seconds:.1f} | {spread(whole)} | {spread(same)} | {nfe:.0f} | "
            f"{computed:.1f} | {apart:.3f} |"
        )
        rows.append(
            {
                "way": name,
                "seconds": times[name],
                "nfe": nfe,
                "nfe_computed": computed,
                "score_difference": apart,
            }
        )
    return rows


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["problems", "random"])
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    parser.add_argument("--size", type=int, choices=SHAPES, default=100)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--cache", nargs="+", choices=CACHES, default=list(CACHES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    keep_freed_memory()
    is_random = args.what == "random"
    rows = (
        random_model(args.size, args.length, args.cache, args.rounds)
        if is_random
        else problems(args.data)
    )
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
