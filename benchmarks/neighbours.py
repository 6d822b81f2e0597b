"""Decoding and serving alone and beside one busy process a core, with dise's threads and with
OpenMP's own way to wait.

python benchmarks/neighbours.py [--rounds 5] [--spin TURNS ...]

Each way runs in processes of its own, since OpenMP reads its settings when it is loaded; they take
turns, round by round, alone and beside the neighbours, which run only then. Alone: the lower
quartile, as other work on the machine may only add to it; beside: the median. Fair: how many times
longer the same threads take if each has its equal share of the cores. --spin adds ways that spin so
many turns, with GNU's OpenMP.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import psutil
from command import Parser, head, row
from serving import ask, server

from dise_core.threads import COUNT_VARIABLES, WAIT_VARIABLES, num_cores

OPENMP_DEFAULTS = {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"}
"""What GNU's, and Intel's and LLVM's, take where nothing is said."""

MAX_TOKENS = 32
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100000))"

Job = Callable[[], float]
"""Runs once and returns the seconds that it took."""


def environments(spins: Sequence[int]) -> dict[str, dict[str, str]]:
    """Return the environment of each way."""
    silent = {
        name: value
        for name, value in os.environ.items()
        if name not in (*WAIT_VARIABLES, *COUNT_VARIABLES)
    }
    ways = {
        "dise": silent,
        "OpenMP's own": silent | OPENMP_DEFAULTS | {"OMP_NUM_THREADS": str(num_cores())},
    }
    return ways | {f"{turns} turns": silent | {"GOMP_SPINCOUNT": str(turns)} for turns in spins}


def decode() -> None:
    """Print torch's number of threads; then, for each number of prompts on a line, decode them and
    print the seconds.
    """
    from settled import settled

    from dise_app.terminal.memory import keep_freed_memory
    from dise_core import LLM, SamplingParams

    keep_freed_memory()
    llm = settled(LLM("countdown"))
    import torch

    print(torch.get_num_threads(), flush=True)
    params = SamplingParams(
        max_tokens=MAX_TOKENS, block_length=16, selector="response", logprobs=None
    )
    for line in sys.stdin:
        prompts = [
            f"{n % 97 + 1},{n % 37 + 1},{n % 11 + 1} -> {n % 90 + 1}" for n in range(int(line))
        ]
        started = time.perf_counter()
        llm.generate(prompts, params)
        print(time.perf_counter() - started, flush=True)


@contextmanager
def decoder(environment: Mapping[str, str]) -> Iterator[tuple[int, Callable[[int], float]]]:
    """Yield the number of threads of a process that decodes, and what has it decode so many
    prompts.
    """
    process = subprocess.Popen(
        [sys.executable, __file__, "--decode"],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin as orders, process.stdout as answers:

        def run(count: int) -> float:
            print(count, file=orders, flush=True)
            return float(answers.readline())

        yield int(answers.readline()), run


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Keep so many processes busy."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    time.sleep(0.2)
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def measure(jobs: Mapping[str, Job], rounds: int) -> dict[str, tuple[float, float]]:
    """Return the seconds of each way alone, the lower quartile, and beside one busy process a core,
    the median.
    """
    times: dict[tuple[str, bool], list[float]] = {}
    for _ in range(2):
        for job in jobs.values():
            job()
    for _ in range(rounds):
        for name, job in jobs.items():
            times.setdefault((name, False), []).append(job())
            with neighbours(num_cores()):
                times.setdefault((name, True), []).append(job())
    return {
        name: (float(np.quantile(times[name, False], 0.25)), statistics.median(times[name, True]))
        for name in jobs
    }


def show(what: str, jobs: Mapping[str, Job], rounds: int, threads: Mapping[str, int]) -> None:
    """Print a row for each way."""
    for name, (alone, beside) in measure(jobs, rounds).items():
        fair = max(1.0, (threads[name] + num_cores()) / num_cores())
        times = [f"{alone:.3f}", f"{beside:.3f}", f"{beside / alone:.2f}"]
        row(what, name, threads[name], *times, f"{fair:.1f}", f"{beside / alone / fair:.2f}")


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spin", type=int, nargs="*", default=[], metavar="TURNS")
    parser.add_argument("--prompts", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--decode", action="store_true", help=argparse.SUPPRESS)
    args = parser.options(rounds=1, prompts=[1], requests=1)
    if args.decode:
        decode()
        return
    print(
        f"{num_cores()} cores, {psutil.cpu_percent(2):.0f}% busy with other work before the start\n"
    )
    head("", "threads' way", "threads", "alone, s", "beside, s", "times slower", "fair", "of fair")
    ways = environments(args.spin)
    with ExitStack() as stack:
        decoders = {name: stack.enter_context(decoder(env)) for name, env in ways.items()}
        threads = {name: number for name, (number, _) in decoders.items()}
        for count in args.prompts:
            jobs = {name: partial(run, count) for name, (_, run) in decoders.items()}
            show(f"decoding, prompts: {count}", jobs, args.rounds, threads)
    with ExitStack() as stack:
        urls = {name: stack.enter_context(server("float32", env))[0] for name, env in ways.items()}
        asked: dict[str, Job] = {
            name: lambda url=url: asyncio.run(ask(url, args.requests, args.requests, MAX_TOKENS))
            for name, url in urls.items()
        }
        show(f"serving, requests at once: {args.requests}", asked, args.rounds, threads)


if __name__ == "__main__":
    main()
