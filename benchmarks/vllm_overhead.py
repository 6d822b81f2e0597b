"""Time a denoising step on vLLM in process and on transformers, side by side in one run, and compare what they write.

python benchmarks/vllm_overhead.py [--data countdown_cd3_test.jsonl]        (in the environment of `make vllm`)

The embedded model, float32. A step advances all sequences once; both engines alternate, after a warm-up.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from dise_app.evaluation import questions
from dise_core import LLM, SamplingParams

AT_ONCE = (1, 8, 64)
ROUNDS = 5
PARAMS = SamplingParams(max_tokens=48, block_length=16, tokens_per_step=2)
STEPS = 25


def milliseconds(llm: LLM, count: int) -> float:
    """Return the time of one step of `count` sequences; scoring is one step."""
    prompts = [f"{n + 1},{n % 7 + 2},{n % 13 + 5} -> {n + 3}" for n in range(count)]
    started = time.perf_counter()
    llm.generate(prompts, PARAMS)
    return (time.perf_counter() - started) / STEPS * 1e3


def agreement(engines: dict[str, LLM], path: Path | None) -> None:
    """Print on how many Countdown problems both write the same, and how far their scores are apart."""
    prompts = [item.prompt for item in questions.load("countdown-short", path).items]
    answers = [[a.outputs[0] for a in llm.generate(prompts, PARAMS)] for llm in engines.values()]
    pairs = list(zip(*answers, strict=True))
    same = sum(one.text == other.text for one, other in pairs)
    apart = max(abs(one.score.value - other.score.value) for one, other in pairs)
    print(f"\nsame text: {same} of {len(pairs)}; largest difference of scores: {apart:.1e} nats")


def main() -> None:
    """Print the table, and how far both agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    args = parser.parse_args()
    engines = {"transformers": LLM("countdown"), "vllm": LLM("countdown", engine="vllm")}
    print("| sequences | transformers, ms a step | vLLM, ms a step | ratio, median (range) |")
    print("| ---: | ---: | ---: | --- |")
    for count in AT_ONCE:
        times: dict[str, list[float]] = {name: [] for name in engines}
        for llm in engines.values():
            milliseconds(llm, count)
        for _ in range(ROUNDS):
            for name, llm in engines.items():
                times[name].append(milliseconds(llm, count))
        ratios = [b / a for a, b in zip(*times.values(), strict=True)]
        medians = [f"{statistics.median(each):.2f}" for each in times.values()]
        low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
        print(f"| {count} | {medians[0]} | {medians[1]} | {middle:.2f} ({low:.2f} to {high:.2f}) |", flush=True)
    agreement(engines, args.data)


if __name__ == "__main__":
    main()
