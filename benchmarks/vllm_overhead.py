"""Time a denoising step on vLLM in process and on transformers, side by side in one run, and
compare what they write.

python benchmarks/vllm_overhead.py [--data countdown_cd3_test.jsonl] [--compile]    (in the
environment of `make vllm`)

The embedded model, float32. A step advances all sequences once; both engines alternate, after a
warm-up. Of vLLM's step the body is vLLM's own, the pooler is ours, and the rest is what is done for
each request around them. --compile lets vLLM compile the model, which needs a C++ compiler.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from command import Parser, head, row, spread

from dise_core import LLM, SamplingParams
from dise_eval.datasets import questions

PARAMS = SamplingParams(max_tokens=48, block_length=16, tokens_per_step=2)
STEPS = 25


class Clock:
    """Adds up the seconds that a module's forward passes take."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def watch(self, module: Any) -> None:
        """Start with the module's next pass."""
        module.register_forward_pre_hook(self._start)
        module.register_forward_hook(self._stop)

    def _start(self, *_: object) -> None:
        self._started = time.perf_counter()

    def _stop(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._started


def watch(llm: LLM) -> tuple[Clock, Clock]:
    """Return the clocks of vLLM's body and of our pooler."""
    body, pooler = Clock(), Clock()

    def install(model: Any) -> None:
        body.watch(model)
        pooler.watch(model.pooler)

    llm.predictor._reader._engine.apply_model(install)  # type: ignore[attr-defined]
    return body, pooler


def milliseconds(llm: LLM, count: int) -> float:
    """Return the time of one step of `count` sequences; scoring is one step."""
    prompts = [f"{n + 1},{n % 7 + 2},{n % 13 + 5} -> {n + 3}" for n in range(count)]
    started = time.perf_counter()
    llm.generate(prompts, PARAMS)
    return (time.perf_counter() - started) / STEPS * 1e3


def in_parts(llm: LLM, clocks: Sequence[Clock], count: int) -> list[float]:
    """Return the time of one step on vLLM: whole, its body, the pooler and the rest."""
    before = [clock.seconds for clock in clocks]
    whole = milliseconds(llm, count)
    parts = [
        (clock.seconds - start) / STEPS * 1e3 for clock, start in zip(clocks, before, strict=True)
    ]
    return [whole, *parts, whole - sum(parts)]


def agreement(engines: dict[str, LLM], path: Path | None, num_problems: int) -> None:
    """Print on how many Countdown problems both write the same, and how far their scores
    are apart.
    """
    prompts = [item.prompt for item in questions.load("countdown-short", path, num_problems).items]
    answers = [[a.outputs[0] for a in llm.generate(prompts, PARAMS)] for llm in engines.values()]
    pairs = list(zip(*answers, strict=True))
    same = sum(one.text == other.text for one, other in pairs)
    apart = max(abs(one.score.value - other.score.value) for one, other in pairs)
    print(f"\nsame text: {same} of {len(pairs)}; largest difference of scores: {apart:.1e} nats")


def main() -> None:
    """Print the table, and how far both agree."""
    parser = Parser(__doc__)
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--problems", type=int, default=256)
    parser.add_argument("--compile", action="store_true", help="let vLLM compile the model")
    args = parser.options(sequences=[1], rounds=1, problems=2)
    options = {"enforce_eager": False} if args.compile else {}
    transformers, vllm = LLM("countdown"), LLM("countdown", engine="vllm", vllm_options=options)
    clocks = watch(vllm)
    head("sequences", "transformers, ms a step", "vLLM, ms a step", "body", "pooler", "rest",
         "ratio, median (range)")  # fmt: skip
    for count in args.sequences:
        milliseconds(transformers, count), milliseconds(vllm, count)
        rounds = [
            (milliseconds(transformers, count), *in_parts(vllm, clocks, count))
            for _ in range(args.rounds)
        ]
        medians = [f"{statistics.median(column):.2f}" for column in zip(*rounds, strict=True)]
        row(count, *medians, spread([vllm / ours for ours, vllm, *_ in rounds]))
    agreement({"transformers": transformers, "vllm": vllm}, args.data, args.problems)


if __name__ == "__main__":
    main()
