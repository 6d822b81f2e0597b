"""Measure the server: throughput at 64 at once against one at a time, and its memory over many requests.

python benchmarks/serving.py [--requests 5000]

Starts `dise serve` on the embedded model and asks it from this process.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_ONCE = 64
PAIRS = 5
BATCH = 128


def body(number: int) -> dict[str, object]:
    """Return a chat request; none is like another."""
    prompt = f"{number % 100 + 1},{number % 37 + 1},{number % 11 + 1} -> {number % 90 + 1}"
    return {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 48,
        "dise": {"block_length": 16, "tokens_per_step": 2},
    }


async def ask(url: str, count: int, at_once: int) -> float:
    """Send `count` requests, at most `at_once` at a time; return the seconds it took. Raises if one fails."""
    gate = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:

        async def one(number: int) -> None:
            async with gate:
                answer = await client.post(f"{url}/v1/chat/completions", json=body(number))
                answer.raise_for_status()

        started = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(count)))
        return time.perf_counter() - started


@contextmanager
def server() -> Iterator[tuple[str, psutil.Process]]:
    """Yield the address and the process of a server."""
    command = [sys.executable, "-c", "from dise_app.cli.main import main; main()", "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None
    try:
        yield found[0], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def throughput(url: str) -> None:
    """Print requests per second at 64 at once and one at a time, side by side."""
    asyncio.run(ask(url, AT_ONCE, AT_ONCE))
    rates: dict[int, list[float]] = {1: [], AT_ONCE: []}
    ratios = []
    for _ in range(PAIRS):
        single = BATCH / asyncio.run(ask(url, BATCH, 1))
        together = BATCH / asyncio.run(ask(url, BATCH, AT_ONCE))
        rates[1].append(single)
        rates[AT_ONCE].append(together)
        ratios.append(together / single)
    print("| at once | requests per second, median |")
    print("| ---: | ---: |")
    for at_once, values in rates.items():
        print(f"| {at_once} | {statistics.median(values):.1f} |")
    print(f"\nratio: min {min(ratios):.1f}, median {statistics.median(ratios):.1f}, max {max(ratios):.1f}\n", flush=True)


def memory(url: str, process: psutil.Process, count: int) -> None:
    """Print the server's memory after each tenth of `count` requests."""
    print("| requests | resident MiB |")
    print("| ---: | ---: |")
    for part in range(1, 11):
        asyncio.run(ask(url, count // 10, AT_ONCE))
        print(f"| {part * count // 10} | {process.memory_info().rss / 2**20:.0f} |", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000)
    args = parser.parse_args()
    with server() as (url, process):
        throughput(url)
        memory(url, process, args.requests)


if __name__ == "__main__":
    main()
