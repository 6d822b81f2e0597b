"""What the caches gain, and what they change: texts, scores and solved problems; and Algorithm 1 beside a fixed length.

python benchmarks/cache.py [--data countdown_cd3_test.jsonl]

First the embedded model on Countdown problems, then 8 prompts on a random model of 100 million parameters.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import random_llada

from dise_app.cli.memory import keep_freed_memory
from dise_app.evaluation import questions
from dise_core import LLM, RequestOutput, SamplingParams

CACHES = ("none", "prefix", "dual")
VOCABULARY, WIDTH, LAYERS = 8192, 960, 10
BASE_LENGTH, PATIENCE = 128, 4


def timed(llm: LLM, prompts: list[str] | list[list[int]], params: SamplingParams) -> tuple[float, list[RequestOutput]]:
    """Return the seconds of the second of two runs, and its answers."""
    llm.generate(prompts, params)
    started = time.perf_counter()
    answers = llm.generate(prompts, params)
    return time.perf_counter() - started, answers


def problems(path: Path | None) -> None:
    """Print what each cache solves, by fixed length and by Algorithm 1."""
    loaded = questions.load("countdown-short", path)
    prompts, llm = [item.prompt for item in loaded.items], LLM("countdown")
    print("| length | cache | solved | seconds | texts as exact | mean difference of scores, nats |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for length, settings in (("fixed", {}), ("dise-flexible", {"patience": PATIENCE})):
        exact: list[RequestOutput] = []
        for cache in CACHES:
            params = SamplingParams(
                max_tokens=32 if settings else 48, block_length=16, cache=cache, length=length, length_settings=settings
            )
            seconds, answers = timed(llm, prompts, params)
            exact = exact or answers
            outputs = [answer.outputs[0] for answer in answers]
            pairs = list(zip(outputs, (answer.outputs[0] for answer in exact), strict=True))
            graders = (loaded.dataset.grader(item, "robust") for item in loaded.items)
            solved = np.mean([g.grade(o.text).is_correct for g, o in zip(graders, outputs, strict=True)])
            same = np.mean([one.text == other.text for one, other in pairs])
            difference = np.mean([abs(one.score.value - other.score.value) for one, other in pairs])
            print(f"| {length} | {cache} | {solved:.1%} | {seconds:.1f} | {same:.1%} | {difference:.4f} |", flush=True)


def random_model() -> None:
    """Print the time of each way to write, relative to an exact fixed length."""
    random = np.random.default_rng(0)
    prompts = [random.integers(0, VOCABULARY - 2, n).tolist() for n in range(16, 80, 8)]
    print("\n| length | cache | seconds | of fixed and exact | NFE |")
    print("| --- | --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        llm = LLM(str(random_llada.write(Path(folder), VOCABULARY, WIDTH, LAYERS, max_length=512)))
        base = 0.0
        for length, settings in (("fixed", {}), ("dise-flexible", {"patience": PATIENCE})):
            for cache in CACHES:
                params = SamplingParams(max_tokens=BASE_LENGTH, cache=cache, length=length, length_settings=settings)
                seconds, answers = timed(llm, prompts, params)
                base = base or seconds
                nfe = np.mean([answer.usage.nfe for answer in answers])
                print(f"| {length} | {cache} | {seconds:.1f} | {seconds / base:.2f} | {nfe:.0f} |", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    args = parser.parse_args()
    keep_freed_memory()
    problems(args.data)
    random_model()


if __name__ == "__main__":
    main()
