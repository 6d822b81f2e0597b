"""How long others wait while clients send schemas and expressions that cost much to prepare, what
is computed once they have left, and what memory they leave behind.

python benchmarks/hostile_schemas.py [--rounds 5] [--requests 40] [--slow]

Starts `dise serve` on the embedded model. The attacks, each by two clients in another process: an
object of 1,300 properties that is referred to 1,000 times, and 1,000 references to a constant of
38,000 characters; --slow adds expressions that take all the time that one may. No two are alike,
and all clients are one address. Alone and attacked take turns, round by round. New: the slowest of
the constraints that are asked for under attack for the first time. Afterwards: processor time a
second, three seconds after the clients left. Memory: of the server and its workers.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil
from command import Parser, head, row, server

PROMPT = "83,18,75 -> 10"
PREPARED = {"type": "integer", "minimum": 10, "maximum": 999}

Body = dict[str, Any]


def references(number: int) -> Body:
    """Return the schema of 1,000 references to a wide object; no two numbers' are alike."""
    target = {
        "type": "object",
        "properties": {f"p{index}": True for index in range(1300)},
        "required": ["p0"] * 2000,
        "title": str(number),
    }
    return {"$defs": {"a": target}, "oneOf": [{"$ref": "#/$defs/a"}] * 1000}


def constants(number: int) -> Body:
    """Return the schema of 1,000 references to a long constant; no two numbers' are alike."""
    constant = {"const": f"{number:010}" + "x" * 37_990}
    return {"$defs": {"a": constant}, "prefixItems": [{"$ref": "#/$defs/a"}] * 1000}


def slow(number: int) -> Body:
    """Return an expression that takes all the time that one may."""
    return {"guided_regex": f"(a|b)*a(a|b){{20}}{number}"}


ATTACKS: dict[str, Callable[[int], Body]] = {
    "references": lambda number: {"guided_json": references(number)},
    "constants": lambda number: {"guided_json": constants(number)},
    "slow": slow,
}


class Client:
    """One connection to a server, which sends one request at a time."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(str(address.hostname), address.port, 60)

    def ask(self, **more: object) -> tuple[int, float]:
        """Return the status of an answer, and the seconds that it took. A server closes connections
        that idle; such a one is opened anew.
        """
        body = {"prompt": PROMPT, "max_tokens": 16, "dise": {"block_length": 16}, **more}
        request = json.dumps(body), {"Content-Type": "application/json"}
        start = time.perf_counter()
        try:
            status = self._send(*request)
        except ConnectionError:
            self._connection.close()
            status = self._send(*request)
        return status, time.perf_counter() - start

    def _send(self, body: str, headers: dict[str, str]) -> int:
        self._connection.request("POST", "/v1/completions", body, headers)
        with self._connection.getresponse() as answer:
            answer.read()
            return answer.status

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def seconds(self, **more: object) -> float:
        """Return the seconds of an answer. Raises RuntimeError for a refusal."""
        status, seconds = self.ask(**more)
        if status != 200:
            raise RuntimeError(f"The server refused a request with the status {status}.")
        return seconds


def attack(url: str, kinds: list[str]) -> None:
    """Send hostile constraints again and again, by two clients of each kind."""
    numbers = itertools.count(os.getpid() * 10**6)

    def one(kind: str) -> None:
        client = Client(url)
        while True:
            client.ask(**ATTACKS[kind](next(numbers)))

    for kind in kinds * 2:
        threading.Thread(target=one, args=(kind,), daemon=True).start()
    time.sleep(1e6)


@contextmanager
def attacked(url: str, kinds: list[str]) -> Iterator[None]:
    """Attack from another process, which is killed at the end."""
    process = subprocess.Popen([sys.executable, __file__, "--attack", url, *kinds])
    try:
        time.sleep(2)
        yield
    finally:
        process.kill()
        process.wait()


def tree(process: psutil.Process) -> list[psutil.Process]:
    """Return a server and all its processes."""
    return [process, *process.children(recursive=True)]


def processor_seconds(process: psutil.Process) -> float:
    """Return what a server and its living and waited-for children have computed."""
    total = 0.0
    for one in tree(process):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def resident(process: psutil.Process) -> float:
    """Return the memory of a server and its processes in MiB."""
    return sum(one.memory_info().rss for one in tree(process)) / 2**20


def latencies(url: str, process: psutil.Process, args: argparse.Namespace) -> None:
    """Print how long answers take alone and attacked, and what goes on afterwards."""
    kinds = ["references", "constants", *(["slow"] if args.slow else [])]
    asked: dict[str, Body] = {"plain": {}, "prepared": {"guided_json": PREPARED}}
    times: dict[tuple[str, bool], list[float]] = {}
    news: list[float] = []
    idle: list[float] = []
    client, numbers = Client(url), itertools.count(1000)

    def measure(is_attacked: bool) -> None:
        for _ in range(args.requests):
            for name, more in asked.items():
                times.setdefault((name, is_attacked), []).append(client.seconds(**more))
            if len(news) < 5 * args.rounds and is_attacked:
                schema = {"type": "integer", "minimum": next(numbers)}
                news.append(client.seconds(guided_json=schema))

    for more in asked.values():
        client.seconds(**more)
    for _ in range(args.rounds):
        measure(is_attacked=False)
        with attacked(url, kinds):
            measure(is_attacked=True)
        time.sleep(3)
        before = processor_seconds(process)
        time.sleep(1)
        idle.append(processor_seconds(process) - before)
    client.close()
    head("answers", "median alone, s", "p99", "median attacked, s", "p99", "p99, times alone")
    for name in asked:
        cells = []
        for is_attacked in (False, True):
            cells += np.percentile(times[name, is_attacked], [50, 99]).tolist()
        row(name, *(f"{cell:.3f}" for cell in cells), f"{cells[3] / cells[1]:.2f}")
    print(f"\nnew, the slowest of {len(news)}: {max(news):.2f} s", end="; ")
    print(f"afterwards: {max(idle):.2f} s a second\n")


def memory(url: str, process: psutil.Process, args: argparse.Namespace) -> None:
    """Print the memory before and after hostile schemas, and wide expressions."""
    client, kinds = Client(url), ["references", "constants"]
    for _ in range(10):
        client.seconds()
    before = resident(process)
    head("memory", "MiB", "more than before")
    row("before", f"{before:.0f}", "")
    for number in range(args.schemas):
        client.ask(**ATTACKS[kinds[number % 2]](number))
    row(f"{args.schemas} schemas", f"{resident(process):.0f}", f"{resident(process) - before:.0f}")
    refused = 0
    for number in range(args.wide):
        wide = {"guided_regex": f"[0-9]{{1,{19_500 - number}}}", "dise": {"block_length": 4}}
        refused += client.ask(**wide)[0] != 200
    client.close()
    now = resident(process)
    row(f"{args.wide} wide expressions ({refused} refused)", f"{now:.0f}", f"{now - before:.0f}")


def main() -> None:
    """Print both tables."""
    parser = Parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--schemas", type=int, default=2000)
    parser.add_argument("--wide", type=int, default=40)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--attack", nargs="+", help=argparse.SUPPRESS)
    args = parser.options(rounds=1, requests=1, schemas=2, wide=1)
    if args.attack:
        attack(args.attack[0], args.attack[1:])
        return
    with server("--dtype", "float32") as (url, process):
        latencies(url, process, args)
        memory(url, process, args)


if __name__ == "__main__":
    main()
