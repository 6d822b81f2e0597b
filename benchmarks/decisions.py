"""Measure decisions: requests a second at 64 at once against one at a time, in one run.

python benchmarks/decisions.py [--requests 128] [--pairs 5] [--dtype float32] [--width 512]

Asks the embedded model five questions a request through the async engine, which batches whatever
waits together. Both ways answer the same requests; the ratio is the median over the pairs. Where
other programs share the processors, compare the processor's time, which is printed too. --width
asks a LLaDA of that width and 8 layers instead, with random weights, which reads bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from command import Parser, head, row, settled
from random_checkpoints import dense, write

from dise import AsyncLLM
from dise_app.terminal.heap import keep_freed_memory
from dise_decide import ChoiceQuestion, DecisionOutput, DecisionParams

AT_ONCE, LAYERS = 64, 8
CLOZE = DecisionParams(layout="cloze", joint=True)
QUESTIONS = [
    ChoiceQuestion.model_validate({"instructions": text, "choices": ["+", "-", "*", "/"]})
    for text in ("8", ",5", ",3", ",10", ",7")
]


def given(number: int) -> str:
    """Return a problem; no two of a run are alike."""
    return f"{number % 100 + 1},{number % 37 + 1},{number % 11 + 1} -> {number % 90 + 1}"


@dataclass(frozen=True)
class Took:
    """Seconds that requests took, on the clock and on the processors."""

    wall: float
    processor: float

    def per_request(self, count: int) -> tuple[str, str]:
        """Return the requests a second, and the processor's milliseconds for each."""
        return f"{count / self.wall:.1f}", f"{1000 * self.processor / count:.2f}"


async def ask(llm: AsyncLLM, count: int, at_once: int) -> tuple[Took, list[DecisionOutput]]:
    """Ask `count` requests, at most `at_once` at a time; return what they took, and the answers."""
    gate = asyncio.Semaphore(at_once)

    async def one(number: int) -> DecisionOutput:
        async with gate:
            return await llm.decide(given(number), QUESTIONS, CLOZE)

    started, used = time.perf_counter(), time.process_time()
    answers = await asyncio.gather(*(one(number) for number in range(count)))
    took = Took(time.perf_counter() - started, time.process_time() - used)
    return took, list(answers)


def assert_same(some: list[DecisionOutput], others: list[DecisionOutput], tolerance: float) -> None:
    """Assert that both ways gave the same log-probabilities, in one pass a request."""
    for one, other in zip(some, others, strict=True):
        assert one.usage.nfe == other.usage.nfe == 1
        for mine, theirs in zip(one.answers, other.answers, strict=True):
            for a, b in zip(mine.diagnostics.logprobs, theirs.diagnostics.logprobs, strict=True):
                assert a is not None
                assert b is not None
                assert abs(a - b) < tolerance


async def measure(options: argparse.Namespace, model: str) -> None:
    """Print the requests a second of both ways, and their ratio."""
    count = options.requests
    keep_freed_memory()
    async with settled(AsyncLLM(model, dtype=options.dtype)) as llm:
        await ask(llm, AT_ONCE, AT_ONCE)  # warm up
        ratios, used = list[float](), list[float]()
        head("", f"{AT_ONCE} at once, a second", "processor, ms each", "one at a time, a second",
             "processor, ms each", "ratio", "of the processor's time")  # fmt: skip
        for pair in range(options.pairs):
            alone, some = await ask(llm, count, 1)
            together, others = await ask(llm, count, AT_ONCE)
            assert_same(some, others, 1e-3 if options.dtype == "float32" else 0.5)
            ratios.append(alone.wall / together.wall)
            used.append(alone.processor / together.processor)
            row(f"pair {pair + 1}", *together.per_request(count), *alone.per_request(count),
                f"{ratios[-1]:.2f}", f"{used[-1]:.2f}")  # fmt: skip
        medians = [f"{statistics.median(values):.2f}" for values in (ratios, used)]
        row("median", *[""] * 4, *medians)


def main() -> None:
    """Run the benchmark."""
    parser = Parser(__doc__)
    parser.add_argument("--requests", type=int, default=2 * AT_ONCE)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--width", type=int, help="a multiple of 64")
    options = parser.options(requests=4, pairs=1)
    with TemporaryDirectory() as folder:
        model = "countdown"
        if options.width:
            model = str(write(Path(folder), dense(512, options.width, LAYERS)))
        asyncio.run(measure(options, model))


if __name__ == "__main__":
    main()
