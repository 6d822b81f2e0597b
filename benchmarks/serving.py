"""Measure the server: throughput at 64 at once against one at a time, and its memory over many
requests.

python benchmarks/serving.py [--requests 5000] [--pairs 5]

Starts `dise serve` on the embedded model and asks it from this process.
"""

from __future__ import annotations

import asyncio
import statistics
import time

import httpx
import psutil
from command import Parser, head, row, server, spread

AT_ONCE = 64


def body(number: int, max_tokens: int) -> dict[str, object]:
    """Return a chat request; no two are alike."""
    prompt = f"{number % 100 + 1},{number % 37 + 1},{number % 11 + 1} -> {number % 90 + 1}"
    return {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "dise": {"block_length": 16, "tokens_per_step": 2},
    }


async def ask(url: str, count: int, at_once: int, max_tokens: int) -> float:
    """Send `count` requests, at most `at_once` at a time; return the seconds it took. Raises if one
    fails.
    """
    gate = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:

        async def one(number: int) -> None:
            async with gate:
                answer = await client.post(
                    f"{url}/v1/chat/completions", json=body(number, max_tokens)
                )
                answer.raise_for_status()

        started = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(count)))
        return time.perf_counter() - started


def throughput(url: str, dtype: str, max_tokens: int, batch: int, pairs: int) -> None:
    """Print requests per second one at a time and 64 at once, alternating, and their ratio."""
    asyncio.run(ask(url, batch, AT_ONCE, max_tokens))
    rates: dict[int, list[float]] = {1: [], AT_ONCE: []}
    ratios = []
    for _ in range(pairs):
        single = batch / asyncio.run(ask(url, batch, 1, max_tokens))
        together = batch / asyncio.run(ask(url, batch, AT_ONCE, max_tokens))
        rates[1].append(single)
        rates[AT_ONCE].append(together)
        ratios.append(together / single)
    medians = (f"{statistics.median(values):.1f}" for values in rates.values())
    row(dtype, max_tokens, *medians, spread(ratios))


def memory(url: str, process: psutil.Process, count: int) -> None:
    """Print the server's memory after each tenth of `count` requests."""
    print()
    head("requests", "resident MiB")
    for part in range(1, 11):
        asyncio.run(ask(url, count // 10, AT_ONCE, 48))
        row(part * count // 10, f"{process.memory_info().rss / 2**20:.0f}")


def main() -> None:
    """Print both tables."""
    parser = Parser(__doc__)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    args = parser.options(requests=10, batch=2, pairs=1, dtype=["float32"])
    head("weights", "tokens", "requests a second, one at a time", f"{AT_ONCE} at once",
         "ratio, median (range)")  # fmt: skip
    for dtype in args.dtype:
        with server("--dtype", dtype) as (url, _):
            for max_tokens in (32, 48):
                throughput(url, dtype, max_tokens, args.batch, args.pairs)
    with server("--dtype", "float32") as (url, process):
        memory(url, process, args.requests)


if __name__ == "__main__":
    main()
