"""What the caches gain, and what they change: time, texts, decisions, scores and solved problems,
beside the exact way.

python benchmarks/cache.py problems [--data countdown_cd3_test.jsonl]
python benchmarks/cache.py random [--size 100] [--length 128] [--cache none prefix dual]

`problems`: the embedded model on Countdown. `random`: two prompts on a random model, where only
time means much.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from command import Parser, head, ratios, row, settled, spread, take_turns
from random_checkpoints import SHAPES, dense, write

from dise_app.terminal.heap import keep_freed_memory
from dise_core import LLM, RequestOutput, SamplingParams
from dise_eval.datasets import questions

CACHES = ("none", "prefix", "dual")
FLEXIBLE = {"length": "dise-flexible"}
PATIENCE = {"patience": 4}
VOCABULARY, PROMPT_LENGTHS = 8192, (24, 56)

WAYS: dict[str, dict[str, Any]] = {
    "fixed 48, blocks of 16": {"max_tokens": 48, "block_length": 16},
    "the same, threshold 0.9": {"max_tokens": 48, "block_length": 16, "unmasking": "threshold"},
    "dise-flexible from 32, blocks of 16": {"max_tokens": 32, "block_length": 16, **FLEXIBLE},
    "dise-flexible from 32, blocks of 32": {"max_tokens": 32, "block_length": 32, **FLEXIBLE},
    "fixed 128, blocks of 32": {"max_tokens": 128},
    "dise-flexible from 128, blocks of 32": {
        "max_tokens": 128, "length_settings": PATIENCE, **FLEXIBLE,
    },
}  # fmt: skip


def agreement(
    answers: Sequence[RequestOutput], exact: Sequence[RequestOutput]
) -> tuple[float, float, float]:
    """Return how many texts, and how many decisions on length, are those of the exact way, and how
    far scores are apart.
    """
    pairs = [(one.outputs[0], other.outputs[0]) for one, other in zip(answers, exact, strict=True)]
    facts = [
        [(output.token_ids, (len(output.trace), output.stopped_by, len(output.token_ids)))
         for output in pair] for pair in pairs
    ]  # fmt: skip
    same = [[mine == theirs for mine, theirs in zip(*pair, strict=True)] for pair in facts]
    apart = np.mean([abs(one.score.value - other.score.value) for one, other in pairs])
    return *np.mean(same, axis=0).tolist(), float(apart)


def problems(path: Path | None, num_problems: int, ways: Sequence[str]) -> None:
    """Print what each cache solves, and how long it takes."""
    loaded = questions.load("countdown-short", path, num_problems)
    prompts, llm = [item.prompt for item in loaded.items], settled(LLM("countdown"))
    llm.generate(prompts[:64], SamplingParams(max_tokens=48))
    head("", "cache", "solved", "seconds", "texts as exact", "lengths as exact",
         "mean difference of scores, nats")  # fmt: skip
    for way in ways:
        exact: list[RequestOutput] = []
        for cache in CACHES:
            started = time.perf_counter()
            answers = llm.generate(prompts, SamplingParams(cache=cache, **WAYS[way]))
            seconds = time.perf_counter() - started
            exact = exact or answers
            verdicts = [loaded.graded(item, answer.outputs[0].text, "robust")
                        for item, answer in zip(loaded.items, answers, strict=True)]  # fmt: skip
            solved = np.mean([verdict["is_correct"] for verdict in verdicts])
            texts, lengths, apart = agreement(answers, exact)
            row(way, cache, f"{solved:.1%}", f"{seconds:.1f}", f"{texts:.1%}", f"{lengths:.1%}",
                f"{apart:.4f}")  # fmt: skip


def random_model(size: int, length: int, caches: Sequence[str], rounds: int) -> None:
    """Print the time of fixed length and of Algorithm 1 with each cache."""
    random = np.random.default_rng(0)
    prompts = [random.integers(0, VOCABULARY - 2, n).tolist() for n in PROMPT_LENGTHS]
    with tempfile.TemporaryDirectory() as folder:
        llm = settled(LLM(str(write(Path(folder), dense(VOCABULARY, *SHAPES[size])))))
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
    head("length, cache", "seconds", "of fixed and exact", "of fixed with this cache", "NFE",
         "computed", "scores apart, nats")  # fmt: skip
    for name, params in asked.items():
        *_, apart = agreement(answers[name], answers[f"{params.length}, {caches[0]}"])
        nfe = np.mean([answer.usage.nfe for answer in answers[name]])
        computed = np.mean([answer.usage.nfe_computed for answer in answers[name]])
        of_fixed = [ratios(times, name, f"fixed, {cache}") for cache in (caches[0], params.cache)]
        seconds = statistics.median(times[name])
        row(name, f"{seconds:.1f}", *map(spread, of_fixed), f"{nfe:.0f}", f"{computed:.1f}",
            f"{apart:.3f}")  # fmt: skip


def main() -> None:
    """Print one of the tables, or both."""
    parser = Parser(__doc__)
    parser.add_argument("what", choices=["problems", "random"], nargs="?")
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    parser.add_argument("--size", type=int, choices=SHAPES, default=100)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--cache", nargs="+", choices=CACHES, default=list(CACHES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--problems", type=int, default=256)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    args = parser.options(problems=1, size=1, length=8, rounds=1, ways=[*WAYS][:3])
    keep_freed_memory()
    if args.what != "random":
        problems(args.data, args.problems, args.ways)
    if args.what != "problems":
        random_model(args.size, args.length, args.cache, args.rounds)


if __name__ == "__main__":
    main()
