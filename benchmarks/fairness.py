"""How long a small request takes beside one that is huge, and beside an ordinary one.

python benchmarks/fairness.py [--requests 40]

One client writes 16 tokens again and again with the embedded model while another is busy with one
kind of work. Prints the median and the 99th percentile of the small requests' seconds, and how many
times longer the latter is than beside an ordinary request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import numpy as np
from command import Parser, head, row

from dise_core import AsyncLLM, SamplingParams, ScoringParams

SMALL = SamplingParams(max_tokens=16, block_length=16, seed=0)
ORDINARY = SamplingParams(max_tokens=128, seed=0)
SHORT = {"max_tokens": 16, "block_length": 16}
LARGE = {"regex": "[0-9+=]{1,6000}"}
PROMPT = "83,18,75 -> 10"
TEXT = "83-75=8,18-8=10<answer>18-(83-75)</answer>"
LONG = ",".join(["83-75=8"] * 50)


def loads(llm: AsyncLLM) -> dict[str, Callable[[], Awaitable[Any]] | None]:
    """Return what else the model is asked for, by name."""

    def write(prompts: int = 1, **settings: Any) -> Callable[[], Awaitable[Any]]:
        params = ORDINARY.model_copy(update=settings)
        return lambda: llm.generate([PROMPT] * prompts, params)

    def score(text: str, scorer: str, **settings: Any) -> Callable[[], Awaitable[Any]]:
        params = ScoringParams(scorer=scorer, scorer_settings=settings, selector="response")
        return lambda: llm.score(PROMPT, text, params)

    return {
        "nothing": None,
        "an ordinary request": write(),
        "best of 64 at 448 tokens": write(max_tokens=448, best_of=64, temperature=0.7),
        "256 prompts": write(256),
        "256 short prompts": write(256, **SHORT),
        "256 short prompts with an expression": write(256, **SHORT, constraint="regex",
                                                      constraint_settings=LARGE),
        "daedal up to 448 tokens": write(max_tokens=32, length="daedal", best_of=32,
                                         temperature=0.7),
        "mc of 10,000 samples": score(TEXT, "mc", num_samples=10_000),
        "interleaved, one token a pass": score(LONG, "interleaved", k=2**20),
    }  # fmt: skip


async def small_beside(
    llm: AsyncLLM, work: Callable[[], Awaitable[Any]] | None, requests: int
) -> list[float]:
    """Return the seconds of so many small requests while that work goes on, begun anew when it
    ends.
    """

    async def busy() -> None:
        while work is not None:
            await work()

    beside = asyncio.ensure_future(busy())
    await asyncio.sleep(1.0 if work else 0.0)
    seconds = []
    for _ in range(requests):
        started = time.perf_counter()
        await llm.generate(PROMPT, SMALL)
        seconds.append(time.perf_counter() - started)
    beside.cancel()
    with suppress(asyncio.CancelledError):
        await beside  # raises what the work failed by
    return seconds


async def measure(requests: int) -> None:
    """Print the table."""
    head("beside", "median, s", "99th percentile, s", "beside an ordinary one")
    async with AsyncLLM("countdown") as llm:
        await llm.generate(PROMPT, SMALL)
        ordinary = np.inf
        for name, work in loads(llm).items():
            seconds = await small_beside(llm, work, requests)
            median, late = np.percentile(seconds, [50, 99])
            ordinary = late if name == "an ordinary request" else ordinary
            ratio = f"{late / ordinary:.2f}" if np.isfinite(ordinary) else ""
            row(name, f"{median:.3f}", f"{late:.3f}", ratio)


def main() -> None:
    """Measure and print."""
    parser = Parser(__doc__)
    parser.add_argument("--requests", type=int, default=40)
    asyncio.run(measure(parser.options(requests=1).requests))


if __name__ == "__main__":
    main()
