"""Measure decisions: requests a second at 64 at once against one at a time, in one run.

python benchmarks/decisions.py [--requests 128] [--pairs 5]

Asks the embedded model five questions a request through the async engine, which batches whatever
waits together. Both ways answer the same requests; the ratio is the median over the pairs.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from dise_core import AsyncLLM, ChoiceQuestion, DecisionOutput, DecisionParams

AT_ONCE = 64
CLOZE = DecisionParams(layout="cloze")
QUESTIONS = [
    ChoiceQuestion.model_validate({"instructions": text, "choices": ["+", "-", "*", "/"]})
    for text in ("8", ",5", ",3", ",10", ",7")
]


def given(number: int) -> str:
    """Return a problem; no two of a run are alike."""
    return f"{number % 100 + 1},{number % 37 + 1},{number % 11 + 1} -> {number % 90 + 1}"


async def ask(llm: AsyncLLM, count: int, at_once: int) -> tuple[float, list[DecisionOutput]]:
    """Ask `count` requests, at most `at_once` at a time; return the seconds and the answers."""
    gate = asyncio.Semaphore(at_once)

    async def one(number: int) -> DecisionOutput:
        async with gate:
            return await llm.decide(given(number), QUESTIONS, CLOZE)

    started = time.perf_counter()
    answers = await asyncio.gather(*(one(number) for number in range(count)))
    return time.perf_counter() - started, list(answers)


def assert_same(some: list[DecisionOutput], others: list[DecisionOutput]) -> None:
    """Assert that both ways gave the same probabilities, in one pass a request."""
    for one, other in zip(some, others, strict=True):
        assert one.usage.nfe == other.usage.nfe == 1
        for mine, theirs in zip(one.answers, other.answers, strict=True):
            for a, b in zip(mine.diagnostics.logprobs, theirs.diagnostics.logprobs, strict=True):
                assert a is not None
                assert b is not None
                assert abs(a - b) < 1e-3


async def measure(requests: int, pairs: int) -> None:
    """Print the requests a second of both ways, and their ratio."""
    async with AsyncLLM("countdown") as llm:
        await ask(llm, AT_ONCE, AT_ONCE)  # warm up
        ratios = []
        for _ in range(pairs):
            alone, some = await ask(llm, requests, 1)
            together, others = await ask(llm, requests, AT_ONCE)
            assert_same(some, others)
            ratios.append(alone / together)
            print(
                f"one at a time {requests / alone:7.1f} a second, {AT_ONCE} at once "
                f"{requests / together:7.1f} a second, ratio {ratios[-1]:.2f}"
            )
        print(f"median ratio {statistics.median(ratios):.2f} over {pairs} pairs")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2 * AT_ONCE)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(measure(options.requests, options.pairs))


if __name__ == "__main__":
    main()
